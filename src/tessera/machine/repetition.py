"""The best of several short repetitions: a rate is what a machine can do, and noise only takes away."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The highest rate seen, and how far below it the middle repetition was, as a fraction of the best."""

    rate: float
    spread: float


def seconds_of(work: Callable[[], object]) -> float:
    """How long one call takes."""
    start = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - start) / 1e9


def best_rate(
    work: Callable[[], object],
    amount: float,
    *,
    budget: float,
    least: int = 3,
    most: int = 50,
    before: Callable[[], object] | None = None,
) -> Best:
    """The rate at which `work` does `amount` (FLOPs, bytes), repeated for `budget` seconds but `least` times.

    `before` runs ahead of each repetition and is not timed.
    """
    end = time.perf_counter() + budget
    times: list[float] = []
    while len(times) < least or (len(times) < most and time.perf_counter() < end):
        if before is not None:
            before()
        times.append(max(seconds_of(work), 1e-9))
    times.sort()
    middle = times[len(times) // 2]
    return Best(rate=amount / times[0], spread=1 - times[0] / middle)
