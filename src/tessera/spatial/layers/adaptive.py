"""Adaptive mean pools: every rank adds up its part, and the result is whole on all of them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from tessera.geometry import Interval
from tessera.spatial.layers.layer import AsItIs, Layer, makes
from tessera.spatial.placed import Placed, Settings
from tessera.transport.transport import Transport


@makes(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)
def adaptive_mean(module: Any, placed: Placed, settings: Settings) -> Layer:
    """Few pixels are left, so that cutting them again would be of no use: tiles become whole images."""
    target = target_sizes(module.output_size, placed.sizes[1:])
    if placed.kind != "tiles":
        return AsItIs(module, placed, placed.resized(target))
    output = Placed.of("whole", placed.mesh, (placed.sizes[0], *target))
    return AsItIs(module, placed, output) if placed.mesh.size == 1 else AdaptiveMean(placed, output, settings)


def target_sizes(asked: Any, sizes: Sequence[int]) -> tuple[int, ...]:
    """The sizes that an adaptive pool makes: one for all dims or one for each, None leaving a dim as it is."""
    each = asked if isinstance(asked, tuple | list) else (asked,) * len(sizes)
    return tuple(size if want is None else int(want) for want, size in zip(each, sizes, strict=True))


class AdaptiveMean:
    """Means over boxes that may lie on several ranks: a weighted sum along each dim, then the sum over the ranks."""

    def __init__(self, source: Placed, placed: Placed, settings: Settings) -> None:
        self.placed, self._transport = placed, settings.transport
        own, self._pixels = source.box(settings.transport.rank), prod(source.sizes[1:])
        self._weights = [
            mean_weights(size, target, part)
            for size, target, part in zip(source.sizes[1:], placed.sizes[1:], own.dims[1:], strict=True)
        ]

    def __call__(self, tile: Tensor) -> Tensor:
        samples, *target = self.placed.sizes
        wide = torch.float64 if tile.dtype == torch.float64 else torch.float32  # as torch adds up halves
        if not tile.numel():
            found = tile.to(wide).sum() + tile.new_zeros((samples, tile.shape[1], *target), dtype=wide)
        elif all(size == 1 for size in target):
            spatial = tuple(range(2, tile.dim()))
            found = tile.sum(spatial, keepdim=True, dtype=wide) / self._pixels
        else:
            found = tile.to(wide)
            for dim, weights in enumerate(self._weights, start=2):
                found = (found.movedim(dim, -1) @ weights.to(wide).T).movedim(-1, dim)
        return sum_to_whole(found.contiguous(), self._transport).to(tile.dtype)


def mean_weights(size: int, target: int, own: Interval) -> Tensor:
    """What each output of one dim (rows) takes of this rank's pixels (columns).

    >>> mean_weights(4, 2, Interval(1, 4))
    tensor([[0.5000, 0.0000, 0.0000],
            [0.0000, 0.5000, 0.5000]], dtype=torch.float64)
    """
    found = torch.zeros(target, len(own), dtype=torch.float64)
    for place in range(target):
        start, stop = place * size // target, -(-(place + 1) * size // target)
        read = Interval(start, stop) & own
        if len(read):
            found[place, (read - own.start).slice] = 1 / (stop - start)
    return found


def sum_to_whole(part: Tensor, transport: Transport) -> Tensor:
    """The sum over the ranks, on every rank.

    All ranks then compute the same from it, and so the same gradient of it: that is also the gradient of each part.
    """
    found: Tensor = _SumToWhole.apply(part, transport)  # type: ignore[no-untyped-call]
    return found


class _SumToWhole(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor, transport: Transport) -> Tensor:
        found = part.detach().clone()
        transport.all_reduce(found)
        return found

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None
