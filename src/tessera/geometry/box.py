"""Half-open intervals of integers, and boxes: products of intervals. Ownership and traffic are expressed in boxes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, slots=True)
class Interval:
    """The integers from `start` up to, not including, `stop`; empty if `stop` is not above `start`.

    >>> Interval(0, 8) & Interval(6, 12)
    Interval(6:8)
    >>> len(Interval(5, 3))
    0
    >>> Interval(2, 4) + 10
    Interval(12:14)
    """

    start: int
    stop: int

    def __len__(self) -> int:
        return max(0, self.stop - self.start)

    def __and__(self, other: Interval) -> Interval:
        return Interval(max(self.start, other.start), min(self.stop, other.stop))

    def __add__(self, offset: int) -> Interval:
        return Interval(self.start + offset, self.stop + offset)

    def __sub__(self, offset: int) -> Interval:
        return self + -offset

    def hull(self, other: Interval) -> Interval:
        """Return the shortest interval that contains this interval and `other`.

        >>> Interval(0, 2).hull(Interval(5, 6))
        Interval(0:6)
        """
        if not len(self) or not len(other):
            return self if len(self) else other
        return Interval(min(self.start, other.start), max(self.stop, other.stop))

    @property
    def slice(self) -> slice:
        return slice(self.start, max(self.start, self.stop))

    def __repr__(self) -> str:
        return f"Interval({self.start}:{self.stop})"


@dataclass(frozen=True, slots=True)
class Box:
    """A product of intervals, one per dim of the image: the pixels of a rectangle. Samples are the first dim (n, h, w).

    >>> Box.of((0, 1), (0, 4), (2, 6)) & Box.of((0, 1), (3, 9), (0, 3))
    Box(0:1, 3:4, 2:3)
    >>> Box.of((0, 1), (0, 4), (2, 6)).size
    16
    >>> Box.from_sizes((1, 4, 6))
    Box(0:1, 0:4, 0:6)
    """

    dims: tuple[Interval, ...]

    @classmethod
    def of(cls, *ranges: tuple[int, int]) -> Box:
        return cls(tuple(Interval(*r) for r in ranges))

    @classmethod
    def from_sizes(cls, sizes: Sequence[int]) -> Box:
        """Return the box of a whole image: from zero to each size."""
        return cls(tuple(Interval(0, size) for size in sizes))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(dim) for dim in self.dims)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def origin(self) -> tuple[int, ...]:
        return tuple(dim.start for dim in self.dims)

    def __bool__(self) -> bool:
        return all(dim.stop > dim.start for dim in self.dims)

    def __and__(self, other: Box) -> Box:
        return Box(tuple(a & b for a, b in zip(self.dims, other.dims, strict=True)))

    def __contains__(self, other: Box) -> bool:
        return not other or (self & other) == other

    def shift(self, offsets: Sequence[int]) -> Box:
        """Return the box moved by an offset in each dim.

        >>> Box.of((0, 1), (0, 4)).shift((0, -2))
        Box(0:1, -2:2)
        """
        return Box(tuple(dim + step for dim, step in zip(self.dims, offsets, strict=True)))

    def relative_to(self, frame: Box) -> Box:
        """Return this box in local coordinates, counted from the frame's origin.

        >>> Box.of((0, 1), (5, 7)).relative_to(Box.of((0, 1), (4, 9)))
        Box(0:1, 1:3)
        """
        return self.shift(tuple(-start for start in frame.origin))

    def hull(self, other: Box) -> Box:
        """Return the smallest box that contains this box and `other`."""
        if not self or not other:
            return self if self else other
        return Box(tuple(a.hull(b) for a, b in zip(self.dims, other.dims, strict=True)))

    def subtract(self, other: Box) -> Iterator[Box]:
        """Yield the pixels of this box that are not in `other`, as boxes that do not overlap.

        >>> list(Box.of((0, 3), (0, 3)).subtract(Box.of((1, 2), (1, 9))))
        [Box(0:1, 0:3), Box(2:3, 0:3), Box(1:2, 0:1)]
        """
        common = self & other
        if not common:
            if self:
                yield self
            return
        remaining = list(self.dims)
        for axis, (interval, shared) in enumerate(zip(self.dims, common.dims, strict=True)):
            for part in (Interval(interval.start, shared.start), Interval(shared.stop, interval.stop)):
                if len(part):
                    yield Box((*remaining[:axis], part, *remaining[axis + 1 :]))
            remaining[axis] = shared

    @property
    def slices(self) -> tuple[slice, ...]:
        return tuple(dim.slice for dim in self.dims)

    def __repr__(self) -> str:
        return f"Box({', '.join(f'{dim.start}:{dim.stop}' for dim in self.dims)})"


def make_disjoint(boxes: Sequence[Box]) -> tuple[Box, ...]:
    """Return disjoint boxes that cover the pixels of `boxes`; a pixel in several boxes stays in the first of them.

    >>> make_disjoint([Box.of((0, 4)), Box.of((2, 6))])
    (Box(0:4), Box(4:6))
    """
    result: list[Box] = []
    for box in boxes:
        parts = [box] if box else []
        for earlier in result:
            parts = [rest for part in parts for rest in part.subtract(earlier)]
        result.extend(parts)
    return tuple(result)


def format_sizes(sizes: Sequence[int]) -> str:
    """Format sizes as text.

    >>> format_sizes((1, 4, 6))
    '1x4x6'
    """
    return "x".join(map(str, sizes))
