"""Enlarging by powers of two: torch's own fast kernels on the frame give the very numbers of the uncut image.

By these factors all indices and weights are exact, and repeat with every pixel of the input. Other factors round, and
round differently when counted from another origin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from tessera.geometry import Box, Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Enlarged:
    """A resampling by a power of two in each dim.

    >>> doubled = Enlarged.of((4, 4), (8, 8), (None, None), "bilinear")
    >>> doubled.needs(Box.of((0, 1), (0, 4), (3, 8)))
    Box(0:1, 0:3, 0:4)
    """

    sizes: tuple[int, ...]
    factors: tuple[int, ...]
    mode: str

    @classmethod
    def of(
        cls, sizes: Sequence[int], targets: Sequence[int], scales: Sequence[float | None], mode: str
    ) -> Enlarged | None:
        """None where a factor is another one."""
        factors = tuple(target // size for size, target in zip(sizes, targets, strict=True))
        for size, target, factor, scale in zip(sizes, targets, factors, scales, strict=True):
            if factor < 1 or factor & (factor - 1) or size * factor != target or scale not in (None, factor):
                return None
        return cls(sizes=tuple(sizes), factors=factors, mode=mode)

    def needs(self, output: Box) -> Box:
        """The pixels under the output, and for a mean their neighbours."""
        more = 0 if self.mode.startswith("nearest") else 1
        spatial = [
            Interval(part.start // factor - more, -(-part.stop // factor) + more) & Interval(0, size)
            for part, factor, size in zip(output.dims[1:], self.factors, self.sizes, strict=True)
        ]
        return Box((output.dims[0], *spatial))

    def function(self, output: Box, frame: Box) -> Callable[[Tensor], Tensor]:
        """What makes the output of the frame that it reads: all of it enlarged, then cut."""
        triples = zip(output.dims[1:], frame.dims[1:], self.factors, strict=True)
        cut = tuple((part - read.start * factor).slice for part, read, factor in triples)
        factors = tuple(float(factor) for factor in self.factors)

        def enlarge(image: Tensor) -> Tensor:
            return F.interpolate(image, scale_factor=factors, mode=self.mode)[(slice(None), slice(None), *cut)]

        return enlarge
