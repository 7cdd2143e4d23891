"""Padding that repeats pixels of a rank's own frame: reflected, or the border's over and over."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from tessera.geometry.box import Box, Interval
from tessera.geometry.halo import Fill


class Filling:
    """The fills of a frame, as views of any tensor that spans it; their order matters, and backward its reverse."""

    def __init__(self, fills: Sequence[Fill], frame: Box) -> None:
        self._fills: list[tuple[int, Interval, Interval, bool]] = []
        for fill in fills:
            start, dim = frame.dims[fill.axis].start, fill.axis + (fill.axis > 0)  # channels are dim 1
            self._fills.append((dim, fill.placed - start, fill.taken - start, fill.mirrored))

    def __bool__(self) -> bool:
        return bool(self._fills)

    def views(self, frame: Tensor) -> list[tuple[Tensor, Tensor, tuple[int, ...]]]:
        """What is filled, what it repeats, and along which dims that is mirrored."""
        return [
            (_part(frame, dim, placed), _part(frame, dim, taken), (dim,) if mirrored else ())
            for dim, placed, taken, mirrored in self._fills
        ]

    def fold(self, grad: Tensor) -> None:
        """Add the gradient of all padding to that of the pixels that it repeats."""
        for dim, placed, taken, mirrored in reversed(self._fills):
            from_padding = _part(grad, dim, placed)
            _part(grad, dim, taken).add_(from_padding.flip(dim) if mirrored else from_padding.sum(dim, keepdim=True))


def _part(frame: Tensor, dim: int, part: Interval) -> Tensor:
    return frame.narrow(dim, part.start, len(part))
