"""Half-open ranges and their products: the only words in which ownership and need are said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, slots=True)
class Interval:
    """The integers from `start` up to, not including, `stop`; empty where `stop` is not above `start`.

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

    def __add__(self, by: int) -> Interval:
        return Interval(self.start + by, self.stop + by)

    def __sub__(self, by: int) -> Interval:
        return self + -by

    def hull(self, other: Interval) -> Interval:
        """The shortest interval that holds both.

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
    """A product of intervals: of pixels over (n, h, w), or over as many dims as the images have, samples first.

    >>> Box.of((0, 1), (0, 4), (2, 6)) & Box.of((0, 1), (3, 9), (0, 3))
    Box(0:1, 3:4, 2:3)
    >>> Box.of((0, 1), (0, 4), (2, 6)).size
    16
    >>> Box.whole((1, 4, 6))
    Box(0:1, 0:4, 0:6)
    """

    dims: tuple[Interval, ...]

    @classmethod
    def of(cls, *ranges: tuple[int, int]) -> Box:
        return cls(tuple(Interval(*r) for r in ranges))

    @classmethod
    def whole(cls, sizes: Sequence[int]) -> Box:
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

    def shifted(self, by: Sequence[int]) -> Box:
        """The same box elsewhere.

        >>> Box.of((0, 1), (0, 4)).shifted((0, -2))
        Box(0:1, -2:2)
        """
        return Box(tuple(dim + step for dim, step in zip(self.dims, by, strict=True)))

    def within(self, frame: Box) -> Box:
        """The same box counted from the frame's origin.

        >>> Box.of((0, 1), (5, 7)).within(Box.of((0, 1), (4, 9)))
        Box(0:1, 1:3)
        """
        return self.shifted(tuple(-start for start in frame.origin))

    def hull(self, other: Box) -> Box:
        """The smallest box that holds both."""
        if not self or not other:
            return self if self else other
        return Box(tuple(a.hull(b) for a, b in zip(self.dims, other.dims, strict=True)))

    def minus(self, other: Box) -> Iterator[Box]:
        """What is left of this box without the other, as boxes that do not overlap.

        >>> list(Box.of((0, 3), (0, 3)).minus(Box.of((1, 2), (1, 9))))
        [Box(0:1, 0:3), Box(2:3, 0:3), Box(1:2, 0:1)]
        """
        common = self & other
        if not common:
            if self:
                yield self
            return
        left = list(self.dims)
        for axis, (mine, cut) in enumerate(zip(self.dims, common.dims, strict=True)):
            for part in (Interval(mine.start, cut.start), Interval(cut.stop, mine.stop)):
                if len(part):
                    yield Box((*left[:axis], part, *left[axis + 1 :]))
            left[axis] = cut

    @property
    def slices(self) -> tuple[slice, ...]:
        return tuple(dim.slice for dim in self.dims)

    def __repr__(self) -> str:
        return f"Box({', '.join(f'{dim.start}:{dim.stop}' for dim in self.dims)})"


def disjoint(boxes: Sequence[Box]) -> tuple[Box, ...]:
    """The same pixels as boxes that do not overlap, earlier boxes whole.

    >>> disjoint([Box.of((0, 4)), Box.of((2, 6))])
    (Box(0:4), Box(4:6))
    """
    found: list[Box] = []
    for box in boxes:
        parts = [box] if box else []
        for earlier in found:
            parts = [left for part in parts for left in part.minus(earlier)]
        found.extend(parts)
    return tuple(found)
