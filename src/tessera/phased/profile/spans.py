"""Stretches of time: joined where they touch, measured, and held against each other."""

from __future__ import annotations

from collections.abc import Iterable

Span = tuple[float, float]


def merged(spans: Iterable[Span]) -> list[Span]:
    """The same time in stretches that neither touch nor overlap, in order.

    >>> merged([(4, 5), (0, 2), (1, 3)])
    [(0, 3), (4, 5)]
    """
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def length(spans: Iterable[Span]) -> float:
    """How long all of them are together; time that several share counts once.

    >>> length([(0, 2), (1, 3)])
    3
    """
    return sum(end - start for start, end in merged(spans))


def shared(one: Iterable[Span], other: Iterable[Span]) -> float:
    """How much time lies in both.

    >>> shared([(0, 2), (5, 9)], [(1, 6)])
    2
    """
    first, second = merged(one), merged(other)
    return length(first) + length(second) - length([*first, *second])


def gaps(spans: Iterable[Span], start: float, end: float) -> list[Span]:
    """What of the time from `start` to `end` is in none of them.

    >>> gaps([(1, 2), (4, 5)], 0, 5)
    [(0, 1), (2, 4)]
    """
    found, at = [], start
    for begins, ends in merged(spans):
        if begins > at:
            found.append((at, min(begins, end)))
        at = max(at, ends)
    return [*found, (at, end)] if at < end else found
