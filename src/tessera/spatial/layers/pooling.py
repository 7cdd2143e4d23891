"""Pools on tiles. A maximum pads with minus infinity, a mean counts what it pads as torch does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tessera.errors import TesseraError
from tessera.geometry import HaloPlan, Interval, Window
from tessera.spatial.layers.framed import Frames
from tessera.spatial.layers.layer import AsItIs, Layer, is_cut, makes
from tessera.spatial.placed import Placed, Settings

MAXIMA: dict[int, Any] = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
MEANS: dict[int, Any] = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


@makes(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
def max_pool(module: nn.MaxPool1d | nn.MaxPool2d | nn.MaxPool3d, placed: Placed, settings: Settings) -> Layer:
    if module.return_indices:
        raise TesseraError("the indices of a maximum are of the uncut image", do="use return_indices=False")
    window = _window(module, placed, dilation=module.dilation)
    output = placed.resized(window.output_size(placed.sizes[1:]))
    if not is_cut(placed):
        return AsItIs(module, placed, output)

    def largest(frame: Tensor) -> Tensor:
        found: Tensor = MAXIMA[len(window.kernel)](frame, window.kernel, window.stride, 0, window.dilation)
        return found

    plan = HaloPlan(placed.partition, window, output.partition)
    return Pool(Frames(plan, settings, fill=float("-inf")), output, largest)


@makes(nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)
def mean_pool(module: nn.AvgPool1d | nn.AvgPool2d | nn.AvgPool3d, placed: Placed, settings: Settings) -> Layer:
    window = _window(module, placed)
    output = placed.resized(window.output_size(placed.sizes[1:]))
    if not is_cut(placed):
        return AsItIs(module, placed, output)
    counts = [
        _counts(window, axis, size, part, with_padding=module.count_include_pad)
        for axis, (size, part) in enumerate(
            zip(placed.sizes[1:], output.box(settings.transport.rank).dims[1:], strict=True)
        )
    ]
    override = getattr(module, "divisor_override", None)
    everywhere = prod(window.kernel)  # what torch divides by where nothing is said
    is_plain = all(bool((count == kernel).all()) for count, kernel in zip(counts, window.kernel, strict=True))

    def mean(frame: Tensor) -> Tensor:
        found: Tensor = MEANS[len(window.kernel)](frame, window.kernel, window.stride)
        if override is not None:
            found = found * (everywhere / override)
        elif not is_plain:
            found = found * (everywhere / _products(counts)).to(found.dtype)
        return found

    return Pool(Frames(HaloPlan(placed.partition, window, output.partition), settings), output, mean)


def _window(module: Any, placed: Placed, dilation: int | Sequence[int] = 1) -> Window:
    window = Window.of(
        module.kernel_size,
        stride=module.stride,
        dilation=dilation,
        padding=module.padding,
        ceil_mode=module.ceil_mode,
        dims=len(placed.sizes) - 1,
    )
    if any(before > reach // 2 for (before, _), reach in zip(window.padding, window.reach, strict=True)):
        raise TesseraError("a pool pads by half of its window at most", got=module.padding)
    return window


class Pool:
    """A pool of the frame, which has its padding already."""

    def __init__(self, frames: Frames, placed: Placed, pool: Callable[[Tensor], Tensor]) -> None:
        self._frames, self.placed, self._pool = frames, placed, pool

    def __call__(self, tile: Tensor) -> Tensor:
        return self._frames.apply(tile, self._pool if self._frames.output else torch.clone)


def _counts(window: Window, axis: int, size: int, output: Interval, *, with_padding: bool) -> Tensor:
    """How many pixels each output of one dim is the mean of; what sticks out of the padding never counts."""
    kernel, stride, (before, after) = window.kernel[axis], window.stride[axis], window.padding[axis]
    counted = Interval(-before, size + after) if with_padding else Interval(0, size)
    starts = [place * stride - before for place in range(output.start, output.stop)]
    return torch.tensor([len(Interval(start, start + kernel) & counted) for start in starts], dtype=torch.float64)


def _products(factors: Sequence[Tensor]) -> Tensor:
    """Every entry of the first with every entry of the next, and so on: one dim for each."""
    return reduce(lambda found, factor: found.unsqueeze(-1) * factor, factors)
