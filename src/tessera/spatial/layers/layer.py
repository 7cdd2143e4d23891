"""The layer protocol, and layers that need no pixels of other ranks."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor, nn

from tessera.spatial.distribution import Distribution


class TileLayer(Protocol):
    """A layer that maps this rank's part of the input to this rank's part of the output.

    `distribution` is the distribution of the output. A layer reads its weights from the module at every call.
    """

    distribution: Distribution

    def __call__(self, tile: Tensor) -> Tensor: ...


class LocalLayer:
    """A layer that requires no pixels of other ranks: the torch module runs on the rank's own part."""

    def __init__(self, module: nn.Module, distribution: Distribution) -> None:
        self._module, self.distribution = module, distribution

    def __call__(self, tile: Tensor) -> Tensor:
        output: Tensor = self._module(tile)
        return output


def is_split(distribution: Distribution) -> bool:
    """Return whether an activation is split into tiles over several ranks."""
    return distribution.partition.workers > 1
