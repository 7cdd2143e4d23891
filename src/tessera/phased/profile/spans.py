"""Spans of time, as pairs of start and end: merging, total length, overlap and gaps."""

from __future__ import annotations

from collections.abc import Iterable

Span = tuple[float, float]


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """Merge spans that touch or overlap, and return them in order.

    >>> merge_spans([(4, 5), (0, 2), (1, 3)])
    [(0, 3), (4, 5)]
    """
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def measure_spans(spans: Iterable[Span]) -> float:
    """Return the total length of spans; time covered by several spans counts once.

    >>> measure_spans([(0, 2), (1, 3)])
    3
    """
    return sum(end - start for start, end in merge_spans(spans))


def measure_overlap(one: Iterable[Span], other: Iterable[Span]) -> float:
    """Return the length of the time that is in both sets of spans.

    >>> measure_overlap([(0, 2), (5, 9)], [(1, 6)])
    2
    """
    first, second = merge_spans(one), merge_spans(other)
    return measure_spans(first) + measure_spans(second) - measure_spans([*first, *second])


def find_gaps(spans: Iterable[Span], start: float, end: float) -> list[Span]:
    """Return the parts of the time from `start` to `end` that are in none of the spans.

    >>> find_gaps([(1, 2), (4, 5)], 0, 5)
    [(0, 1), (2, 4)]
    """
    gaps, at = [], start
    for begins, ends in merge_spans(spans):
        if begins > at:
            gaps.append((at, min(begins, end)))
        at = max(at, ends)
    return [*gaps, (at, end)] if at < end else gaps
