"""Find the highest rate at which a server meets its latency bound, by bisection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tessera.errors import BenchmarkFailed

LATENCY_QUANTILE = 0.99  # fraction of the queries that must be answered within the latency bound
RATE_RESOLUTION = 1.03  # the search ends when the lowest failing rate is this close to the highest passing rate
MIN_CAPACITY_SHARE = 1 / 32  # lowest rate to try, as a fraction of the capacity
MAX_TRIALS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class RateTrial:
    """A trial at one arrival rate: the latency of every query in seconds, and the answered queries per second."""

    rate: float
    latencies: tuple[float, ...]
    achieved: float
    bound: float

    @property
    def latency(self) -> float:
        """The 99th percentile of the query latencies in seconds."""
        return float(np.quantile(self.latencies, LATENCY_QUANTILE))

    @property
    def meets_bound(self) -> bool:
        """Whether the 99th percentile of the latencies is within the latency bound."""
        return self.latency <= self.bound

    @property
    def exceeds_bound_always(self) -> bool:
        """Whether the minimum latency exceeds the latency bound, so that no rate can meet it."""
        return min(self.latencies) > self.bound


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSearch:
    """The trials of a search in order. `error` is the error that ended it early, for example the death of a replica."""

    trials: tuple[RateTrial, ...]
    error: BenchmarkFailed | None = None

    @property
    def best(self) -> RateTrial | None:
        """The trial with the highest rate that meets the latency bound, or None."""
        held = [trial for trial in self.trials if trial.meets_bound]
        return max(held, key=lambda trial: trial.rate) if held else None


def find_highest_rate(trial: Callable[[float], RateTrial], capacity: float) -> RateSearch:
    """Find the highest rate that meets the latency bound, up to `capacity` (images/s without a latency bound).

    At full capacity the queue of random arrivals grows without limit, so the search starts at half the capacity. A
    trial that raises an error ends the search; earlier trials are kept.
    """
    trials: list[RateTrial] = []
    low, high, rate = 0.0, capacity, capacity / 2
    while len(trials) < MAX_TRIALS and rate >= MIN_CAPACITY_SHARE * capacity:
        try:
            trials.append(trial(rate))
        except BenchmarkFailed as failed:
            if not trials:
                raise
            return RateSearch(trials=tuple(trials), error=failed)
        if trials[-1].meets_bound:
            low = rate
        else:
            high = rate
        if high / low < RATE_RESOLUTION if low else trials[-1].exceeds_bound_always:
            break
        rate = (low + high) / 2
    return RateSearch(trials=tuple(trials))
