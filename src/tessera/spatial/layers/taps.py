"""Which pixels a resampling reads for each output, dim by dim, and with which weights: torch's arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from tessera.geometry import Box, Interval


@dataclass(frozen=True, slots=True, eq=False)
class Taps:
    """Of one dim: each output is the pixel `low`, or of `low` and `high` the mean in which `high` has its `share`."""

    low: Tensor
    high: Tensor
    share: Tensor | None = None

    def needs(self, output: Interval) -> Interval:
        """The pixels that a part of the output reads; they go up with the output."""
        return Interval(int(self.low[output.start]), int(self.high[output.stop - 1]) + 1)

    def of(self, output: Interval, origin: int) -> Taps:
        """Those of a part of the output, counted from where its frame begins."""
        share = None if self.share is None else self.share[output.slice]
        return Taps(self.low[output.slice] - origin, self.high[output.slice] - origin, share)

    def read(self, frame: Tensor, dim: int) -> Tensor:
        """The frame resampled along one dim."""
        low = frame.index_select(dim, self.low)
        if self.share is None:
            return low
        weights = self.share.to(frame.dtype).view(-1, *(1 for _ in range(dim + 1, frame.dim())))
        return torch.lerp(low, frame.index_select(dim, self.high), weights)


@dataclass(frozen=True, slots=True, eq=False)
class Tapped:
    """A resampling by any factor: pixel by pixel."""

    taps: Sequence[Taps]

    def needs(self, output: Box) -> Box:
        spatial = [taps.needs(part) for taps, part in zip(self.taps, output.dims[1:], strict=True)]
        return Box((output.dims[0], *spatial))

    def function(self, output: Box, frame: Box) -> Callable[[Tensor], Tensor]:
        """What makes the output of the frame that it reads."""
        pairs = zip(self.taps, output.dims[1:], frame.dims[1:], strict=True)
        own = [taps.of(part, read.start) for taps, part, read in pairs]

        def resample(image: Tensor) -> Tensor:
            for dim, taps in enumerate(own, start=2):
                image = taps.read(image, dim)
            return image

        return resample


def nearest_taps(
    size: int, target: int, scale: float | None, mode: str, dtype: torch.dtype, channels_last: bool
) -> Taps:
    """Torch says itself which pixel it takes: its ways to compute differ in how they round.

    It is asked with a second dim that grows, as it copies an image of which no size changes, whatever the scale.

    >>> nearest_taps(3, 5, None, "nearest", torch.float32, False).low
    tensor([0, 0, 1, 1, 2])
    """
    ramp = torch.arange(size, dtype=dtype).expand(1, 2, 1, size)
    ramp = ramp.contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)
    if scale is None:
        found = F.interpolate(ramp, size=(2, target), mode=mode)
    else:
        found = F.interpolate(ramp, scale_factor=(2.0, scale), mode=mode)
    low = found[0, 0, 0].to(torch.int64)
    return Taps(low, low)


def linear_taps(size: int, target: int, scale: float | None, align_corners: bool, dtype: torch.dtype) -> Taps:
    """Two neighbours and the weight of the second.

    >>> taps = linear_taps(2, 4, None, False, torch.float64)
    >>> taps.low, taps.high, taps.share
    (tensor([0, 0, 0, 1]), tensor([1, 1, 1, 1]), tensor([0.0000, 0.2500, 0.7500, 0.2500], dtype=torch.float64))
    """
    if size == target:
        same = torch.arange(size)
        return Taps(same, same)
    places = torch.arange(target, dtype=dtype)
    if align_corners:
        real = places * (torch.tensor(size - 1, dtype=dtype) / max(target - 1, 1))
    else:
        ratio = torch.tensor(size, dtype=dtype) / target if scale is None else torch.tensor(1 / scale, dtype=dtype)
        real = ((places + 0.5) * ratio - 0.5).clamp_min(0)
    low = real.to(torch.float32).floor().to(torch.int64).clamp_max(size - 1)  # torch rounds to floats here, always
    return Taps(low, (low + 1).clamp_max(size - 1), (real - low).clamp(0, 1))
