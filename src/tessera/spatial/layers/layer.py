"""A layer on a tile, and the table of those that there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from torch import Tensor, nn

from tessera.spatial.placed import Placed, Settings


class Layer(Protocol):
    """Maps this rank's tile to its tile of the output, which lies as `placed` says.

    It reads weights and the training flag from the ordinary module at every call: who changes them there, changes
    them here.
    """

    placed: Placed

    def __call__(self, tile: Tensor) -> Tensor: ...


Maker = Callable[[Any, Placed, Settings], Layer]
M = TypeVar("M", bound=Maker)
LAYERS: dict[type[nn.Module], Maker] = {}


def makes(*modules: type[nn.Module]) -> Callable[[M], M]:
    """Register who makes the layer of a kind of module: `maker(module, placed, settings)`."""

    def register(maker: M) -> M:
        for module in modules:
            if module in LAYERS:
                raise ValueError(f"{module.__name__} has a layer already")
            LAYERS[module] = maker
        return maker

    return register
