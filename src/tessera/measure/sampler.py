"""The sampler, which times one callable.

Calls of 20 microseconds or more are timed one by one: a preemption then affects a single sample, which the median
ignores. Shorter calls are timed in inner loops that are just long enough to make the error of the timer negligible.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import repeat
from types import FunctionType
from typing import Any

import numpy as np

from tessera.measure.clock import MACHINE_CLOCK, Clock
from tessera.measure.samples import Samples, Sampling
from tessera.measure.statistics import estimate_median
from tessera.measure.stopping import StoppingRule, TakeSample, WarmUp, choose_block_size, sample_until, warm_up
from tessera.measure.sync import SINGLE_RANK, Sync

MIN_SINGLE_CALL_NS = 20_000  # a call of at least this duration is timed without an inner loop
INNER_LOOP_NS = 100_000  # duration of a sample of shorter calls, which are repeated in an inner loop
STEAL_READ_INTERVAL_NS = 10_000_000  # interval of reading the steal time, which the kernel counts in ticks of 10 ms
MIN_SAMPLING_NS = 5_000_000  # minimum total duration of adaptive sampling
MAX_WARMUP_BLOCK_NS = 2_000_000  # maximum duration of a block of warm-up samples, besides a fiftieth of the budget

Fn = Callable[[], Any]
# Runs the calls of one sample, given one item per call and the wall clock; returns two readings, whose difference is
# the time of the sample and the second of which is the time of the wall clock now.
CallTimer = Callable[[Iterable[None], Callable[[], int]], tuple[int, int]]


@contextmanager
def disable_garbage_collection() -> Iterator[None]:
    """Disable Python's garbage collector, which would otherwise run in the middle of a sample."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _time_calls(iterations: Iterable[None], wall: Callable[[], int]) -> tuple[int, int]:
    """Call `fn` once per item of `iterations`, and return the clock before and after, in nanoseconds.

    Every series has a copy of this function with `fn` as a global: calling a global takes one instruction less than
    calling a local, and the interpreter's inline caches of each copy are specialised for one callable.
    """
    before = wall()
    for _ in iterations:
        fn()  # type: ignore[name-defined]  # noqa: F821
    return before, wall()


class SampleSeries:
    """The samples of one callable during sampling: nanoseconds, context switches, page faults and steal time."""

    def __init__(self, fn: Fn, clock: Clock, before: Fn | None = None, timer: CallTimer | None = None) -> None:
        self.clock, self.loops = clock, 1
        self._before = before
        self._time_calls: CallTimer = timer or FunctionType(_time_calls.__code__.replace(), {"fn": fn})
        self.wall: list[int] = []
        self.cpu: list[int] = []
        self.switches: list[int] = []
        self.faults: list[int] = []
        self.steal: list[float] = []
        self.warmups: list[float] = []
        self._steal_seconds, self._steal_read_ns = clock.steal(), clock.wall()

    def take_sample(self) -> int:
        """Take one sample and return the clock after it, in nanoseconds."""
        if self._before is not None:
            self._before()
        cpu, iterations = self.clock.cpu, repeat(None, self.loops)
        start = self.clock.counters()
        cpu_before = cpu()
        before, after = self._time_calls(iterations, self.clock.wall)
        cpu_after = cpu()
        counters = self.clock.counters()
        self.wall.append(after - before)
        self.cpu.append(cpu_after - cpu_before)
        self.switches.append(counters.switches - start.switches)
        self.faults.append(counters.faults - start.faults)
        if after - self._steal_read_ns >= STEAL_READ_INTERVAL_NS:
            self._distribute_steal(after)
        return after

    def _distribute_steal(self, now: int) -> None:
        """Distribute the steal time since the last reading over the samples taken since then."""
        seconds, new = self.clock.steal(), len(self.wall) - len(self.steal)
        self.steal.extend([(seconds - self._steal_seconds) / max(1, new)] * new)
        self._steal_seconds, self._steal_read_ns = seconds, now

    def calibrate_loops(self, sync: Sync, long_ns: float) -> None:
        """Choose the number of calls per sample; the trial calls count as warm-up.

        If the first call takes `long_ns` nanoseconds or more, a sample is one call, without further trials. Rank 0
        decides for all ranks, because `fn` may be a collective operation, which every rank has to call equally often.
        With a `before` function a sample is always one call.
        """
        if self._before is not None:
            return
        chosen = False
        while not chosen:
            loops = self.loops
            self.take_sample()
            if loops == 1 and sync.agree(self.wall[-1] < long_ns):
                self.take_sample()  # use the fastest of three calls, because a single short call is easily disturbed
                self.take_sample()
            took = min(self.wall)
            if loops == 1 and took >= MIN_SINGLE_CALL_NS:
                choice = (True, 1)
            elif took >= INNER_LOOP_NS / 2:
                choice = (True, max(1, round(loops * INNER_LOOP_NS / took)))
            else:
                choice = (False, min(loops * 10, math.ceil(loops * INNER_LOOP_NS / max(took, 100))))
            self.discard_warmup()
            chosen, self.loops = sync.agree(choice)

    def discard_warmup(self, keep: int = 0) -> None:
        """Move all samples but the last `keep` to the warm-ups."""
        discarded = len(self.wall) - keep
        self._distribute_steal(self.clock.wall())
        self.warmups.extend(ns / self.loops / 1e9 for ns in self.wall[:discarded])
        for column in (self.wall, self.cpu, self.switches, self.faults, self.steal):
            del column[:discarded]

    def median(self, last: int) -> float:
        """Return the median of the last samples, in nanoseconds."""
        return float(np.median(self.wall[-last:]))

    def finish(self, stopped_by: str, confidence: float) -> Samples:
        """Return the samples in seconds per call, with the relative half-width of the median's confidence interval."""
        self._distribute_steal(self.clock.wall())
        scale = 1e9 * self.loops
        calls = max(1, len(self.wall) * self.loops)
        values = tuple(ns / scale for ns in self.wall)
        interval = estimate_median(values, confidence).relative
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
    sync: Sync = SINGLE_RANK,
    before: Fn | None = None,
    timer: CallTimer | None = None,
) -> Samples:
    """Time `fn` until the confidence interval of its median is narrow enough, or the budget is spent.

    `before` is called, untimed, before every single call: to empty caches, or to restore inputs that `fn` overwrites.
    `timer`, if set, runs and times the calls instead of the host's clock (see `CallTimer`).

    With several ranks, every rank calls this function with its own `sync`. All ranks start each sample together and
    take the same number of samples; rank 0 decides when to stop.
    """
    settings = sampling or Sampling()
    adaptive = settings.iterations is None
    series = SampleSeries(fn, clock, before, timer)

    def take() -> int:
        sync.barrier()
        return series.take_sample()

    with disable_garbage_collection():
        if adaptive or settings.warmup is None:
            series.take_sample()  # the first call is slower than later calls; it does not count towards the budget
            series.discard_warmup()
        start, budget = clock.wall(), settings.budget * 1e9
        if adaptive:
            series.calibrate_loops(sync, budget / 10)
        steady = _warm_up(series, settings, take, start, sync)
        series.discard_warmup(keep=steady if adaptive else 0)
        rule = StoppingRule(
            budget_ns=budget,
            count=settings.iterations,
            min_samples=settings.min_samples,
            max_samples=settings.max_samples,
            growth=1.1,
        )
        decision = sample_until(
            rule, take, start, precise=lambda: _count_precise(series.wall, settings), taken=len(series.wall), sync=sync
        )
        if decision.precise:
            series.discard_warmup(decision.precise)
        reason = decision.reason
        if adaptive and estimate_median(series.wall, settings.confidence).relative <= settings.target:
            reason = "target"
        return series.finish(reason, settings.confidence)


def _warm_up(series: SampleSeries, settings: Sampling, take: TakeSample, start: int, sync: Sync) -> int:
    """Warm up for at most a third of the budget, and return how many of the last samples are in the steady state."""
    budget = settings.budget * 1e9
    if settings.warmup is not None:
        return warm_up(WarmUp(count=settings.warmup), take, start)
    take()
    block = choose_block_size(series.wall[-1], min(MAX_WARMUP_BLOCK_NS, budget / 50), sync)
    return warm_up(WarmUp(limit_ns=budget / 3, block=block), take, start, median=series.median, sync=sync)


def _count_precise(wall: list[int], settings: Sampling) -> int:
    """Return the number of last samples whose median reaches the target precision; 0 if it is not reached.

    These are all samples, or the last half if it is significantly faster than the first half, which was then disturbed
    or part of the warm-up. A slower last half is not used, because it is likely disturbed by another process.
    """
    for count in (len(wall), len(wall) // 2):
        last, earlier = wall[-count:], wall[:-count]
        if count < settings.min_samples or sum(last) < MIN_SAMPLING_NS:
            return 0
        median = estimate_median(last, settings.confidence)
        faster = not earlier or median.high < estimate_median(earlier, settings.confidence).low
        if median.relative <= settings.target and faster:
            return count
    return 0
