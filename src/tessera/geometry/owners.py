"""Finds who has the pixels of a box, without asking everybody one by one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from operator import or_

from tessera.geometry.box import Box


class Owners:
    """An index of the boxes that workers own.

    A set of boxes is an integer with a bit for each. Along every dim, the boxes that begin before a box ends, less
    those that have ended before it begins, are those that it can meet; it meets whom it meets along all dims.

    >>> halves = [[Box.of((0, 4), (0, 3))], [Box.of((0, 4), (3, 6))]]
    >>> Owners(halves).of(Box.of((1, 2), (1, 5)), asking=1)
    [(1, Box(1:2, 3:5)), (0, Box(1:2, 1:3))]
    """

    def __init__(self, shards: Sequence[Iterable[Box]]) -> None:
        self._boxes = [(worker, box) for worker, shard in enumerate(shards) for box in shard]
        self._own = [0] * len(shards)
        for index, (worker, _) in enumerate(self._boxes):
            self._own[worker] |= 1 << index
        dims = list(zip(*(box.dims for _, box in self._boxes), strict=True))
        self._starts = [_Below([dim.start for dim in along]) for along in dims]
        self._stops = [_Below([dim.stop for dim in along]) for along in dims]
        self._exclusive = all(self._met(box) == 1 << index for index, (_, box) in enumerate(self._boxes))

    def of(self, box: Box, asking: int) -> list[tuple[int, Box]]:
        """Which worker has which part of a box: every pixel once, and from who asks where it has it itself."""
        met = self._met(box)
        own = met & self._own[asking]
        near = (self._boxes[index] for index in chain(_members(own), _members(met ^ own)))
        if not self._exclusive:
            return _each_pixel_once(box, near, asking)
        found = [(worker, box & owned) for worker, owned in near]
        if sum(part.size for _, part in found) != box.size:
            return _each_pixel_once(box, found, asking)
        return found

    def _met(self, box: Box) -> int:
        found = -1
        for dim, starts, stops in zip(box.dims, self._starts, self._stops, strict=True):
            found &= starts.below(dim.stop) ^ stops.below(dim.start + 1)
        return found


class _Below:
    """Which of some values, as a set of their indices, are below a limit."""

    def __init__(self, values: Sequence[int]) -> None:
        equal: dict[int, int] = {}
        for index, value in enumerate(values):
            equal[value] = equal.get(value, 0) | 1 << index
        self._values = sorted(equal)
        self._sets = list(accumulate((equal[value] for value in self._values), or_, initial=0))

    def below(self, limit: int) -> int:
        return self._sets[bisect_left(self._values, limit)]


def _members(found: int) -> Iterator[int]:
    """
    >>> list(_members(0b10110))
    [1, 2, 4]
    """
    while found:
        lowest = found & -found
        yield lowest.bit_length() - 1
        found ^= lowest


def _each_pixel_once(box: Box, near: Iterable[tuple[int, Box]], asking: int) -> list[tuple[int, Box]]:
    """The parts of a box by their owners where owners overlap: who comes first, gives."""
    found: list[tuple[int, Box]] = []
    wanted = [box]
    for worker, owned in near:
        left: list[Box] = []
        for part in wanted:
            if common := part & owned:
                found.append((worker, common))
            left.extend(part.minus(owned))
        wanted = left
        if not wanted:
            return found
    raise ValueError(f"nobody owns {wanted[0]!r}, which worker {asking} needs")
