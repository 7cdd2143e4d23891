"""Tests of Poisson arrivals (their distribution) and of query latencies on a synthetic clock."""

from __future__ import annotations

import random
import statistics
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.inference.modes.serving_worker import answer_queries, draw_poisson_arrivals

CLOCK_READ_NS, GRID_NS = 500, 10_000_000  # nanoseconds per clock read, and nanoseconds between arrivals


class SyntheticClock:
    """A clock that advances by each read and by each sleep of the tested code."""

    def __init__(self) -> None:
        self.now = 1_000

    def clock(self) -> int:
        self.now += CLOCK_READ_NS
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)


def simulate_queue(arrivals: list[int], service: int, batch: int) -> list[float]:
    """Return the latency of each query in a simulated queue with one server and batches of up to `batch` queries."""
    free, waited, taken = 0, [], 0
    while taken < len(arrivals):
        start = max(free, arrivals[taken])
        end = taken + 1
        while end < len(arrivals) and end - taken < batch and arrivals[end] <= start:
            end += 1
        free = start + service
        waited += [free - moment for moment in arrivals[taken:end]]
        taken = end
    return waited


@given(
    st.lists(st.integers(0, 100), min_size=1, max_size=40).map(sorted),
    st.integers(0, 10),
    st.integers(1, 4),
)
def test_latency_is_measured_from_the_arrival(ticks, length, batch):
    arrivals, service = (
        [tick * GRID_NS for tick in ticks],
        length * GRID_NS + GRID_NS // 2,
    )  # batches never end exactly at an arrival
    time = SyntheticClock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tessera.inference.modes.serving_worker.BUSY_WAIT_NS", 4 * CLOCK_READ_NS)
        answered = answer_queries(
            lambda: time.sleep(service / 1e9), arrivals, batch, clock=time.clock, sleep=time.sleep
        )
    expected = [waited / 1e9 for waited in simulate_queue(arrivals, service, batch)]
    assert answered == pytest.approx(expected, abs=1e-3)


def test_arrivals_have_the_rate_and_the_spread_of_a_poisson_process():
    moments = draw_poisson_arrivals(200.0, 20_000, seed=5)
    gaps = [b - a for a, b in pairwise(moments)]
    assert moments == sorted(moments)
    assert statistics.mean(gaps) == pytest.approx(5e6, rel=0.05)
    assert statistics.stdev(gaps) == pytest.approx(
        5e6, rel=0.05
    )  # the standard deviation of an exponential distribution equals its mean
    assert draw_poisson_arrivals(200.0, 10, seed=5) == moments[:10]
    assert draw_poisson_arrivals(200.0, 10, seed=6) != moments[:10]


def test_latency_includes_the_queueing_delay_of_a_slow_server():
    time = SyntheticClock()
    rng = random.Random(1)
    arrivals = sorted(rng.randrange(10**9) for _ in range(100))  # 1 s of arrivals that take the server 2 s
    answered = answer_queries(lambda: time.sleep(0.02), arrivals, 1, clock=time.clock, sleep=time.sleep)
    assert answered[-1] > 0.9
