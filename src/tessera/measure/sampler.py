"""The sampler that every figure comes from.

Calls longer than some tens of microseconds are timed one by one: a long block of calls absorbs every preemption
that hits it, a single call is hit or it is not, and the median does not care. Shorter calls are timed in inner
loops just long enough that the timer's own error is negligible.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import repeat
from types import FunctionType
from typing import Any

import numpy as np

from tessera.measure.clock import MACHINE_CLOCK, Clock
from tessera.measure.joins import DEFAULT_JOIN, join_ranks
from tessera.measure.samples import Samples, Sampling
from tessera.measure.statistics import median_interval
from tessera.measure.sync import ALONE, Sync

SINGLE_CALL_NS = 20_000  # a call at least this long is timed by itself
LOOP_NS = 100_000  # shorter calls are repeated to about this length
STEAL_NS = 10_000_000  # the kernel counts stolen time in ticks of 10 ms: no use asking more often
LEAST_NS = 5_000_000  # no adaptive run is shorter: a lucky millisecond is no steady state
STEADY = 0.02  # warm-up goes on while a window's median still falls by more than this
WINDOW_NS = 2_000_000  # of warm-up, or a fiftieth of the budget where that is less
LEAST_SAMPLES = 3  # even when one call takes longer than the budget

Fn = Callable[[], Any]


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Keep Python's collector from striking in the middle of a sample."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _timed(turns: Iterable[None], wall: Callable[[], int]) -> tuple[int, int]:
    """The clock before and after. `fn` is a global of each series' own copy of this code: a call of a global takes an
    instruction less than one of a local, and a copy's inline caches know one callable only."""
    before = wall()
    for _ in turns:
        fn()  # type: ignore[name-defined]  # noqa: F821
    return before, wall()


class Series:
    """Samples of one callable as they are taken: nanoseconds, with the disturbances around them."""

    def __init__(self, fn: Fn, clock: Clock, before: Fn | None = None) -> None:
        self.clock, self.loops = clock, 1
        self._before = before
        self._timed: Callable[[Iterable[None], Callable[[], int]], tuple[int, int]]
        self._timed = FunctionType(_timed.__code__.replace(), {"fn": fn})
        self.wall: list[int] = []
        self.cpu: list[int] = []
        self.switches: list[int] = []
        self.faults: list[int] = []
        self.steal: list[float] = []
        self.warmups: list[float] = []
        self._stolen, self._stolen_at = clock.steal(), clock.wall()

    def take(self) -> int:
        """Take one sample and return the clock after it."""
        if self._before is not None:
            self._before()
        cpu, turns = self.clock.cpu, repeat(None, self.loops)
        start = self.clock.counters()
        cpu_before = cpu()
        before, after = self._timed(turns, self.clock.wall)
        cpu_after = cpu()
        counters = self.clock.counters()
        self.wall.append(after - before)
        self.cpu.append(cpu_after - cpu_before)
        self.switches.append(counters.switches - start.switches)
        self.faults.append(counters.faults - start.faults)
        if after - self._stolen_at >= STEAL_NS:
            self._settle_steal(after)
        return after

    def _settle_steal(self, now: int) -> None:
        """Divide what was stolen since the last look over the samples taken since then."""
        stolen, new = self.clock.steal(), len(self.wall) - len(self.steal)
        self.steal.extend([(stolen - self._stolen) / max(1, new)] * new)
        self._stolen, self._stolen_at = stolen, now

    def find_loops(self, sync: Sync, long_ns: float) -> None:
        """Find how many calls make a sample so long that the timer's error is negligible; the trials are warm-ups.

        Ranks must call `fn` equally often, because it may be a collective: rank 0 decides. What has to happen before
        every call leaves no choice: one call is a sample.
        """
        if self._before is not None:
            return
        found = False
        while not found:
            loops = self.loops
            self.take()
            if loops == 1 and sync.agree(self.wall[-1] < long_ns):
                self.take()  # a single short call is easily disturbed: the best of three
                self.take()
            took = min(self.wall)
            if loops == 1 and took >= SINGLE_CALL_NS:
                choice = (True, 1)
            elif took >= LOOP_NS / 2:
                choice = (True, max(1, round(loops * LOOP_NS / took)))
            else:
                choice = (False, min(loops * 10, math.ceil(loops * LOOP_NS / max(took, 100))))
            self.forget()
            found, self.loops = sync.agree(choice)

    def forget(self, keep: int = 0) -> None:
        """Move all samples but the last `keep` to the warm-ups."""
        gone = len(self.wall) - keep
        self._settle_steal(self.clock.wall())
        self.warmups.extend(ns / self.loops / 1e9 for ns in self.wall[:gone])
        for kept in (self.wall, self.cpu, self.switches, self.faults, self.steal):
            del kept[:gone]

    def median(self, last: int) -> float:
        return float(np.median(self.wall[-last:]))

    def finish(self, stopped_by: str, confidence: float) -> Samples:
        self._settle_steal(self.clock.wall())
        scale = 1e9 * self.loops
        calls = max(1, len(self.wall) * self.loops)
        values = tuple(ns / scale for ns in self.wall)
        interval = median_interval(values, confidence).relative
        return Samples(
            values=values,
            cpu=tuple(ns / scale for ns in self.cpu),
            switches=tuple(self.switches),
            steal=tuple(self.steal),
            warmups=tuple(self.warmups),
            loops=self.loops,
            faults_per_call=sum(self.faults) / calls,
            stopped_by=stopped_by,
            interval=interval if math.isfinite(interval) else None,
        )


def sample(
    fn: Fn,
    sampling: Sampling | None = None,
    *,
    clock: Clock = MACHINE_CLOCK,
    sync: Sync = ALONE,
    before: Fn | None = None,
) -> Samples:
    """Time `fn` until the interval of its median is narrow enough, or the budget is spent.

    `before` is called, untimed, before every single call: to empty caches, or to put back what `fn` used up.

    On several ranks each passes its own `sync`: all start every sample together, take the same number of samples,
    and rank 0 decides when to stop.
    """
    how = sampling or Sampling()
    with no_garbage_collection():
        series = Series(fn, clock, before)
        if how.iterations is not None:
            return _fixed(series, how, sync)
        return _adaptive(series, how, sync)


def _fixed(series: Series, how: Sampling, sync: Sync) -> Samples:
    """A number of warm-ups and of iterations, each one call; without the first, until it is warm."""
    assert how.iterations is not None
    if how.warmup is None:
        series.take()  # unlike all others
        series.forget()
    _warm_up(series, how, series.clock.wall(), sync)
    series.forget()
    for _ in range(how.iterations):
        sync.barrier()
        series.take()
    return series.finish("count", how.confidence)


def _adaptive(series: Series, how: Sampling, sync: Sync) -> Samples:
    series.take()  # the first call of anything is unlike all others, and is not charged to the budget
    series.forget()
    start = series.clock.wall()
    deadline = start + round(how.budget * 1e9)
    series.find_loops(sync, how.budget * 1e9 / 10)
    _warm_up(series, how, start, sync)
    stopped_by = _until_steady_enough(series, how, deadline, sync)
    if median_interval(series.wall, how.confidence).relative <= how.target:
        stopped_by = "target"
    return series.finish(stopped_by, how.confidence)


def _warm_up(series: Series, how: Sampling, start: int, sync: Sync) -> None:
    """Go on until two windows in a row bring no further fall; those two, and the one that they were held against, are
    steady and kept as samples.

    At most a third of the budget goes into it. A fixed `warmup` is taken as given.
    """
    if how.warmup is not None:
        for _ in range(how.warmup):
            sync.barrier()
            series.take()
        series.forget()
        return
    sync.barrier()
    series.take()
    length = min(WINDOW_NS, how.budget * 1e9 / 50)
    window = sync.agree(max(1, min(50, int(length / max(series.wall[-1], 1)))))
    best, steady, late = math.inf, 0, False
    while steady < 2 and not late:
        for _ in range(window):
            sync.barrier()
            now = series.take()
        median = series.median(window)
        steady = sync.agree(0 if median < best * (1 - STEADY) else steady + 1)
        best = min(best, median)
        late = sync.agree(now - start > how.budget * 1e9 / 3)
    series.forget(keep=(steady + 1) * window if steady else 0)


def _until_steady_enough(series: Series, how: Sampling, deadline: int, sync: Sync) -> str:
    """Sample on, and look at the interval whenever the count has grown by a tenth; gives what ended it."""
    look_at = max(how.min_samples, len(series.wall))
    ended_by, keep = "", 0
    while not ended_by:
        sync.barrier()
        now = series.take()
        count = len(series.wall)
        if count >= look_at:
            look_at = min(math.ceil(count * 1.1), max(how.max_samples, count + 1))
            keep = _known(series.wall, how)
            if keep:
                ended_by = "target"
            elif count >= how.max_samples:
                ended_by = "samples"
        if not ended_by and now >= deadline and count >= LEAST_SAMPLES:
            ended_by = "budget"
        ended_by, keep = sync.agree((ended_by, keep))
    if keep:
        series.forget(keep)
    return ended_by


def _known(wall: list[int], how: Sampling) -> int:
    """How many of the last samples say the median as exactly as it was asked for; 0 where they do not yet.

    All of them; or the last half, where it is plainly faster than what was before it: that was disturbed, or not warm.
    A half that is slower is no steady state, but a neighbour that came.
    """
    for count in (len(wall), len(wall) // 2):
        last, before = wall[-count:], wall[:-count]
        if count < how.min_samples or sum(last) < LEAST_NS:
            return 0
        found = median_interval(last, how.confidence)
        if found.relative <= how.target and (not before or found.high < median_interval(before, how.confidence).low):
            return count
    return 0


def joined(samples: list[Samples], by: str = DEFAULT_JOIN) -> Samples:
    """Join the samples of several ranks into one series; the ranks' own values are kept beside it."""
    rows = tuple(s.values for s in samples)
    values = join_ranks(rows, by)
    interval = median_interval(values).relative
    return replace(
        samples[0],
        values=values,
        cpu=join_ranks([s.cpu for s in samples], "sum over ranks"),
        switches=tuple(max(column) for column in zip(*(s.switches for s in samples), strict=True)),
        steal=tuple(max(column) for column in zip(*(s.steal for s in samples), strict=True)),
        interval=interval if math.isfinite(interval) else None,
        ranks=rows,
        joined_by=by,
    )
