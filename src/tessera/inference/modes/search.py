"""The highest rate at which a server still answers in time, by halving what is not known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tessera.errors import BenchmarkFailed

QUANTILE = 0.99  # of the answers that have to be in time
CLOSE = 1.03  # a rate that is held and one that is not, this near: no need to look further
LOWEST = 1 / 32  # of the capacity: below it no rate is held
MOST_TRIALS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What came of one rate: the seconds from arrival to answer of every question, and the answers per second."""

    rate: float
    latencies: tuple[float, ...]
    achieved: float
    bound: float

    @property
    def latency(self) -> float:
        """Seconds within which 99 of 100 questions were answered."""
        return float(np.quantile(self.latencies, QUANTILE))

    @property
    def held(self) -> bool:
        return self.latency <= self.bound

    @property
    def hopeless(self) -> bool:
        """Whether even the quickest answer, which hardly waited, came too late: then no rate is low enough."""
        return min(self.latencies) > self.bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The trials of a search in their order; `error` is what ended it early, such as a replica that died."""

    trials: tuple[Trial, ...]
    error: BenchmarkFailed | None = None

    @property
    def best(self) -> Trial | None:
        """The highest rate that was held; None where none was."""
        held = [trial for trial in self.trials if trial.held]
        return max(held, key=lambda trial: trial.rate) if held else None


def highest_rate(trial: Callable[[float], Trial], capacity: float) -> Found:
    """Find the highest rate that is held, up to the capacity: the rate without any bound.

    Questions that arrive at random at the full capacity wait ever longer, so the capacity itself is never held; the
    search begins at half of it. A trial that fails ends it; those before are kept.
    """
    trials: list[Trial] = []
    low, high, rate = 0.0, capacity, capacity / 2
    while len(trials) < MOST_TRIALS and rate >= LOWEST * capacity:
        try:
            trials.append(trial(rate))
        except BenchmarkFailed as failed:
            if not trials:
                raise
            return Found(trials=tuple(trials), error=failed)
        if trials[-1].held:
            low = rate
        else:
            high = rate
        if high / low < CLOSE if low else trials[-1].hopeless:
            break
        rate = (low + high) / 2
    return Found(trials=tuple(trials))
