"""Which bytes of a memory are taken: from the top down for what stays, from the bottom up for what comes and goes."""

from __future__ import annotations

from tessera.geometry import Interval

ALIGNMENT = 16  # bytes: what a core moves at once


def aligned(size: int) -> int:
    """
    >>> aligned(33)
    48
    """
    return -(-size // ALIGNMENT) * ALIGNMENT


class FreeList:
    """A memory of so many bytes: takes the first gap that is large enough, and keeps count.

    >>> memory = FreeList(100)
    >>> memory.take(32), memory.take(32), memory.take(16, from_bottom=True)
    (Interval(68:100), Interval(36:68), Interval(0:16))
    >>> memory.used, memory.largest_gap
    (80, 20)
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.used = self.peak = 0
        self._taken: list[Interval] = []  # from the bottom up

    def gaps(self) -> list[Interval]:
        """What is free, from the bottom up."""
        edges = [0, *(edge for part in self._taken for edge in (part.start, part.stop)), self.size]
        return [Interval(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if b > a]

    @property
    def largest_gap(self) -> int:
        return max((len(gap) for gap in self.gaps()), default=0)

    def take(self, size: int, *, from_bottom: bool = False) -> Interval | None:
        """A place for so many bytes, or None if no gap is large enough."""
        gaps = self.gaps()
        for gap in gaps if from_bottom else reversed(gaps):
            if len(gap) >= size:
                place = Interval(gap.start, gap.start + size) if from_bottom else Interval(gap.stop - size, gap.stop)
                self._taken.append(place)
                self._taken.sort(key=lambda part: part.start)
                self.used += size
                self.peak = max(self.peak, self.used)
                return place
        return None

    def give(self, place: Interval) -> None:
        """Free what was taken."""
        self._taken.remove(place)
        self.used -= len(place)

    def reset_peak(self, at_least: int = 0) -> int:
        """Begin a new high-water mark at what is taken now, or at a mark of before; gives the old one."""
        before, self.peak = self.peak, max(self.used, at_least)
        return before
