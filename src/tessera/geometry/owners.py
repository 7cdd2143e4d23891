"""An index from boxes to the workers that own their pixels."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from operator import or_

from tessera.geometry.box import Box


class OwnerIndex:
    """An index that finds the owners of a box without comparing the box with every owned box.

    A set of owned boxes is an integer with one bit per box. Along each dim, the boxes that overlap the query are the
    boxes that start before its end, without the boxes that end before its start. An owned box overlaps the query if it
    does so along all dims.

    >>> halves = [[Box.of((0, 4), (0, 3))], [Box.of((0, 4), (3, 6))]]
    >>> OwnerIndex(halves).split_by_owner(Box.of((1, 2), (1, 5)), preferred=1)
    [(1, Box(1:2, 3:5)), (0, Box(1:2, 1:3))]
    """

    def __init__(self, shards: Sequence[Iterable[Box]]) -> None:
        self._boxes = [(worker, box) for worker, shard in enumerate(shards) for box in shard]
        self._owned_by = [0] * len(shards)
        for index, (worker, _) in enumerate(self._boxes):
            self._owned_by[worker] |= 1 << index
        dims = list(zip(*(box.dims for _, box in self._boxes), strict=True))
        self._starts = [_SortedBitSets([interval.start for interval in dim]) for dim in dims]
        self._stops = [_SortedBitSets([interval.stop for interval in dim]) for dim in dims]
        self._exclusive = all(self._find_overlaps(box) == 1 << index for index, (_, box) in enumerate(self._boxes))

    def split_by_owner(self, box: Box, preferred: int) -> list[tuple[int, Box]]:
        """Return disjoint parts of a box, each with an owner. Where owners overlap, `preferred` has priority."""
        overlaps = self._find_overlaps(box)
        owned_overlaps = overlaps & self._owned_by[preferred]
        candidates = (
            self._boxes[index] for index in chain(_iter_bits(owned_overlaps), _iter_bits(overlaps ^ owned_overlaps))
        )
        if not self._exclusive:
            return _split_overlapping(box, candidates, preferred)
        parts = [(worker, box & owned) for worker, owned in candidates]
        if sum(part.size for _, part in parts) != box.size:
            return _split_overlapping(box, parts, preferred)
        return parts

    def _find_overlaps(self, box: Box) -> int:
        overlaps = -1
        for dim, starts, stops in zip(box.dims, self._starts, self._stops, strict=True):
            overlaps &= starts.get_below(dim.stop) ^ stops.get_below(dim.start + 1)
        return overlaps


class _SortedBitSets:
    """A sorted list that returns the indices of all values below a limit as a bit set."""

    def __init__(self, values: Sequence[int]) -> None:
        equal: dict[int, int] = {}
        for index, value in enumerate(values):
            equal[value] = equal.get(value, 0) | 1 << index
        self._values = sorted(equal)
        self._sets = list(accumulate((equal[value] for value in self._values), or_, initial=0))

    def get_below(self, limit: int) -> int:
        return self._sets[bisect_left(self._values, limit)]


def _iter_bits(bits: int) -> Iterator[int]:
    """Yield the positions of the set bits.

    >>> list(_iter_bits(0b10110))
    [1, 2, 4]
    """
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def _split_overlapping(box: Box, candidates: Iterable[tuple[int, Box]], worker: int) -> list[tuple[int, Box]]:
    """Split a box by owner where owned boxes overlap: a pixel is assigned to its first owner among the candidates."""
    parts: list[tuple[int, Box]] = []
    missing = [box]
    for owner, owned in candidates:
        rest: list[Box] = []
        for part in missing:
            if common := part & owned:
                parts.append((owner, common))
            rest.extend(part.subtract(owned))
        missing = rest
        if not missing:
            return parts
    raise ValueError(f"no worker owns {missing[0]!r}, which worker {worker} needs")
