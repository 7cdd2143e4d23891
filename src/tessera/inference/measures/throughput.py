"""Windows of replicas, one after the other, until the rate is known: how images per second are sampled.

A window starts at a barrier, and its rate is that of all replicas while all of them work (see `windows`). The rate of
a run is the median over its windows, with an interval between order statistics, as for every other figure. Between the
windows of all replicas the first one runs a few alone: what they reach together, over what it reaches alone, is how
well the replicas scale, and the machine's mood is the same for both.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tessera.errors import BenchmarkFailed
from tessera.inference.measures.energy import Counters, read_counters
from tessera.inference.measures.windows import Window
from tessera.measure.interleave import paired_ratio
from tessera.measure.samples import Samples, Sampling
from tessera.measure.statistics import Interval, median_interval

WARMUPS = 2  # windows that enter no figure, unless told otherwise
LEAST_WINDOWS = 3  # even where one takes longer than the budget
ENOUGH_WINDOWS = 6  # fewer give no interval of 95 %
WINDOWS_IN_BUDGET = 20
PAIRS = 8  # windows of one replica alone, each beside one of all
MOST_VOID = 5  # windows in a row without a moment at which all replicas worked
LONGER = 4  # what such a window is lengthened by when it is taken again


class Crew(Protocol):
    """Replicas that are ready to work."""

    @property
    def size(self) -> int:
        """How many there are."""

    def window(self, *, batches: int, seconds: float, alone: bool = False) -> Window:
        """One window: at least so many batches and at least so long; `alone` is the first replica by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The windows of a run, those of the warm-up apart; `pairs` are one of all replicas beside one of the first alone.

    `error` is what ended the run before its time, such as a replica that died: the windows before that are whole.
    """

    windows: tuple[Window, ...]
    warmups: tuple[Window, ...] = ()
    pairs: tuple[tuple[Window, Window], ...] = ()
    joules: float | None = None
    stopped_by: str = "count"
    error: BenchmarkFailed | None = None

    @property
    def rate(self) -> float:
        """Images per second: the median over the windows."""
        return median_interval([window.rate for window in self.windows]).value

    @property
    def efficiency(self) -> Interval | None:
        """What all replicas reach over as many times what one reaches alone; None where there is but one."""
        if not self.pairs:
            return None
        size = len(self.pairs[0][0].stretches)
        together = tuple(every.rate for every, _ in self.pairs)
        found = paired_ratio(together, tuple(alone.rate for _, alone in self.pairs))
        return Interval(found.value / size, found.low / size, found.high / size)

    @property
    def images(self) -> float:
        """Images of all batches in the windows, whether or not all replicas were at work."""
        return sum(window.batch * len(stretch.begun) for window in self.windows for stretch in window.stretches)

    def samples(self) -> Samples:
        """The rates as samples: of all replicas together, and beside them each replica's own."""
        rates = tuple(window.rate for window in self.windows)
        own = tuple(zip(*(window.rates for window in self.windows), strict=True))
        interval = median_interval(rates).relative if len(rates) >= ENOUGH_WINDOWS else None
        return Samples(
            values=rates,
            cpu=tuple(sum(stretch.cpu for stretch in window.stretches) / 1e9 for window in self.windows),
            warmups=tuple(window.rate for window in self.warmups),
            stopped_by=self.stopped_by,
            interval=interval,
            ranks=own if len(own) > 1 else (),
            joined_by="sum over ranks" if len(own) > 1 else "",
        )


def sample_windows(
    crew: Crew,
    sampling: Sampling,
    *,
    batches: int = 1,
    clock: Callable[[], float] = time.monotonic,
    counters: Callable[[], Counters | None] = read_counters,
) -> Taken:
    """Take windows until the median of their rates is known to the target or the budget is spent.

    A fixed number of iterations makes each window one iteration of `batches` batches on every replica; otherwise a
    window lasts a twentieth of the budget, or one batch where that takes longer.
    """
    seconds = sampling.budget / WINDOWS_IN_BUDGET if sampling.iterations is None else 0.0
    at_least = 1 if sampling.iterations is None else batches
    warmups = [_window(crew, at_least, seconds) for _ in range(WARMUPS if sampling.warmup is None else sampling.warmup)]
    windows: list[Window] = []
    pairs: list[tuple[Window, Window]] = []
    spent: float | None = 0.0
    error: BenchmarkFailed | None = None
    deadline, stopped_by = clock() + sampling.budget, "count"
    try:
        while sampling.iterations is None or len(windows) < sampling.iterations:
            before = counters()
            windows.append(_window(crew, at_least, seconds))
            after = counters()
            spent = None if spent is None or before is None or after is None else spent + before.joules_until(after)
            if crew.size > 1 and len(pairs) < PAIRS:
                pairs.append((windows[-1], _window(crew, at_least, seconds, alone=True)))
            if sampling.iterations is None:
                stopped_by = _verdict(windows, sampling, late=clock() >= deadline)
                if stopped_by:
                    break
    except BenchmarkFailed as failed:
        if not windows:
            raise
        error = failed
    return Taken(
        windows=tuple(windows),
        warmups=tuple(warmups),
        pairs=tuple(pairs),
        joules=spent,
        stopped_by="failure" if error else stopped_by,
        error=error,
    )


def _verdict(windows: list[Window], sampling: Sampling, *, late: bool) -> str:
    """Why to stop now; empty to go on."""
    if len(windows) >= ENOUGH_WINDOWS:
        rates = [window.rate for window in windows]
        if median_interval(rates, sampling.confidence).relative <= sampling.target:
            return "target"
    return "budget" if late and len(windows) >= LEAST_WINDOWS else ""


def _window(crew: Crew, batches: int, seconds: float, *, alone: bool = False) -> Window:
    """A window with a moment at which all of its replicas worked; one without is taken again, four times as long.

    Batches shorter than what a busy machine takes to wake the next replica would otherwise miss each other every time.
    """
    for void in range(MOST_VOID):
        window = crew.window(batches=batches * LONGER**void, seconds=seconds, alone=alone)
        if window.seconds > 0:
            return window
    raise BenchmarkFailed(
        f"in {MOST_VOID} windows in a row the replicas never worked at the same time",
        do="make iterations longer with --device-iterations, or use fewer replicas",
    )
