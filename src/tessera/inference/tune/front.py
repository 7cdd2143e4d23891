"""The Pareto front of throughput and latency: what nothing else beats in both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


def front(points: Iterable[tuple[T, float, float]]) -> list[T]:
    """Of (what, images/s, latency), those that no other one equals or beats in both, by falling latency.

    >>> front([("a", 10.0, 0.1), ("b", 20.0, 0.2), ("c", 15.0, 0.3), ("d", 5.0, 0.05)])
    ['b', 'a', 'd']
    """
    kept: list[T] = []
    least = float("inf")
    for what, _, latency in _by_rate(list(points)):
        if latency < least:
            least = latency
            kept.append(what)
    return kept


def _by_rate(points: Sequence[tuple[T, float, float]]) -> list[tuple[T, float, float]]:
    """The highest rate first; of equal rates the shortest latency."""
    return sorted(points, key=lambda point: (-point[1], point[2]))
