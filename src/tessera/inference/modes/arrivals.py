"""Questions that arrive at random: when, who has to wait for whom, and how long each takes to be answered."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

Clock = Callable[[], int]
EARLY = 200_000  # nanoseconds: a sleep may last that much too long, the rest is waited for awake


def poisson(rate: float, count: int, seed: int) -> list[int]:
    """The moments at which `count` questions arrive, in nanoseconds, `rate` of them per second on average."""
    drawn = random.Random(seed)
    moments, now = [], 0.0
    for _ in range(count):
        now += drawn.expovariate(rate)
        moments.append(round(now * 1e9))
    return moments


def answer(
    run: Callable[[], object],
    arrivals: Sequence[int],
    batch: int,
    *,
    clock: Clock = time.perf_counter_ns,
    sleep: Callable[[float], None] = time.sleep,
) -> list[float]:
    """Answer questions as they arrive, up to `batch` that wait in one go; the seconds from arrival to answer of each.

    The time counts from when a question arrives, whether or not anybody is free to take it: a system that falls behind
    cannot hide that by asking more slowly.
    """
    start = clock()
    moments = [start + moment for moment in arrivals]
    taken, answered = 0, []
    while taken < len(moments):
        now = wait_until(moments[taken], clock, sleep)
        waiting = taken + 1
        while waiting < len(moments) and waiting - taken < batch and moments[waiting] <= now:
            waiting += 1
        run()
        done = clock()
        answered += [(done - moment) / 1e9 for moment in moments[taken:waiting]]
        taken = waiting
    return answered


def wait_until(moment: int, clock: Clock, sleep: Callable[[float], None]) -> int:
    """Wait for a moment, asleep but for the last fraction of a millisecond; the clock then."""
    now = clock()
    while now < moment:
        if moment - now > EARLY:
            sleep((moment - now - EARLY) / 1e9)
        now = clock()
    return now
