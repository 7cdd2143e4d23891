"""Up- and downsampling on tiles, nearest and linear.

What an output reads follows from a few integers per row and column; the box around what a rank's output reads is
what it needs of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tessera.errors import TesseraError
from tessera.geometry import HaloPlan, Partition, Window
from tessera.spatial.layers.enlarging import Enlarged
from tessera.spatial.layers.framed import Frames
from tessera.spatial.layers.layer import AsItIs, Layer, is_cut, makes
from tessera.spatial.layers.taps import Tapped, linear_taps, nearest_taps
from tessera.spatial.placed import Placed, Settings

LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}  # by spatial dims
NEAREST = ("nearest", "nearest-exact")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resampling:
    """The arguments of `torch.nn.functional.interpolate`."""

    size: int | Sequence[int] | None = None
    scale_factor: float | Sequence[float] | None = None
    mode: str = "nearest"
    align_corners: bool | None = None
    recompute_scale_factor: bool | None = None
    antialias: bool = False

    def __post_init__(self) -> None:
        if (self.size is None) == (self.scale_factor is None):
            raise TesseraError("an image is resampled to a size or by a factor", got=(self.size, self.scale_factor))

    def factors(self, dims: int) -> list[float | None]:
        """The scale factor of each dim; none where a size is asked for."""
        if isinstance(self.scale_factor, Sequence):
            return [float(factor) for factor in self.scale_factor]
        return [None if self.scale_factor is None else float(self.scale_factor)] * dims

    def output_size(self, sizes: Sequence[int]) -> tuple[int, ...]:
        if isinstance(self.size, Sequence):
            return tuple(self.size)
        factors = self.factors(len(sizes))
        return tuple(int(size * f) if f else int(self.size or 0) for size, f in zip(sizes, factors, strict=True))

    def scales(self, dims: int) -> list[float | None]:
        """What stretches each dim, where it is not simply the ratio of its sizes."""
        return [None] * dims if self.recompute_scale_factor else self.factors(dims)


@makes(nn.Upsample, nn.UpsamplingNearest2d, nn.UpsamplingBilinear2d)
def upsample(module: nn.Upsample, placed: Placed, settings: Settings) -> Layer:
    asked = Resampling(
        size=module.size,
        scale_factor=module.scale_factor,
        mode=module.mode,
        align_corners=module.align_corners,
        recompute_scale_factor=module.recompute_scale_factor,
    )
    return resample(asked, placed, settings)


def resample(asked: Resampling, placed: Placed, settings: Settings) -> Layer:
    """The layer of an `nn.Upsample`, or of a call of `interpolate` with these arguments."""
    sizes = placed.sizes[1:]
    output = placed.resized(asked.output_size(sizes))
    if not is_cut(placed):
        return AsItIs(_Interpolate(asked), placed, output)
    allowed = (*NEAREST, LINEAR[len(sizes)])
    if asked.mode not in allowed or asked.antialias:
        raise TesseraError(
            "this resampling has no way to run on cut images",
            got=asked.mode + " with antialias" * asked.antialias,
            allowed=allowed,
            do="choose one of these without antialias, or gather before it (gather_at=)",
        )
    dims = zip(sizes, output.sizes[1:], asked.scales(len(sizes)), strict=True)
    if asked.mode == "nearest" and len(sizes) != 2 and any(_is_inconsistent(*dim) for dim in dims):
        raise TesseraError(
            "torch's gradient of this resampling is not that of its output",
            got=f"scale_factor={asked.scale_factor}",
            do="use recompute_scale_factor=True",
        )
    return Resampled(asked, placed, output, settings)


def _is_inconsistent(size: int, target: int, scale: float | None) -> bool:
    """Backward, torch takes sizes that stay or double for these very factors; forward it does not, but in two dims."""
    return scale is not None and target in (size, 2 * size) and scale * size != target


class _Interpolate(nn.Module):
    """A call of `interpolate` as a module."""

    def __init__(self, asked: Resampling) -> None:
        super().__init__()
        self._asked = asked

    def forward(self, image: Tensor) -> Tensor:
        asked: Any = self._asked
        return F.interpolate(
            image,
            asked.size,
            asked.scale_factor,
            asked.mode,
            asked.align_corners,
            recompute_scale_factor=asked.recompute_scale_factor,
            antialias=asked.antialias,
        )


class Resampled:
    """What the output reads comes together in a frame, and is resampled there."""

    def __init__(self, asked: Resampling, given: Placed, placed: Placed, settings: Settings) -> None:
        self._asked, self._given, self.placed, self._settings = asked, given, placed, settings
        self._known: dict[torch.dtype, tuple[Frames, Callable[[Tensor], Tensor]]] = {}

    def __call__(self, tile: Tensor) -> Tensor:
        # torch computes indices in the precision of the image, and which pixel is nearest may hang on it
        precision = torch.float64 if tile.dtype == torch.float64 else torch.float32
        if precision not in self._known:
            self._known[precision] = self._prepare(precision)
        frames, function = self._known[precision]
        return frames.apply(tile, function)

    def _prepare(self, precision: torch.dtype) -> tuple[Frames, Callable[[Tensor], Tensor]]:
        reading = self._reading(precision)
        boxes = [self.placed.box(rank) for rank in range(self.placed.partition.workers)]
        reads = Partition(self._given.sizes, tuple((reading.needs(box),) if box else () for box in boxes))
        frames = Frames(HaloPlan(self._given.partition, Window.point(len(reads.sizes) - 1), reads), self._settings)
        mine = boxes[self._settings.transport.rank]
        return frames, reading.function(mine, frames.mine.need) if mine else torch.clone

    def _reading(self, precision: torch.dtype) -> Enlarged | Tapped:
        asked, sizes, targets = self._asked, self._given.sizes[1:], self.placed.sizes[1:]
        scales = asked.scales(len(sizes))
        if len(sizes) == 2 and sizes == targets and asked.mode == "nearest":
            scales = [None, None]  # torch copies such an image, in this mode alone
        if not asked.align_corners and (enlarged := Enlarged.of(sizes, targets, scales, asked.mode)):
            return enlarged
        dims = zip(sizes, targets, scales, strict=True)
        if asked.mode in NEAREST:
            last = self._settings.channels_last
            return Tapped([nearest_taps(*dim, asked.mode, precision, last) for dim in dims])
        return Tapped([linear_taps(*dim, bool(asked.align_corners), precision) for dim in dims])
