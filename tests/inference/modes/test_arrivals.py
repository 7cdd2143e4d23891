"""Questions at random: how they are spread, and how long each waits, on a clock of our own."""

from __future__ import annotations

import random
import statistics
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.inference.modes.arrivals import answer, poisson

LOOK, GRID = 500, 10_000_000  # nanoseconds: of a look at the clock, and between moments that matter


class Time:
    """A clock that moves when somebody sleeps, works or looks at it."""

    def __init__(self) -> None:
        self.now = 1_000

    def clock(self) -> int:
        self.now += LOOK
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)


def replay(arrivals: list[int], service: int, batch: int) -> list[float]:
    """What each question waits for in a queue with one server, reckoned by hand."""
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
def test_every_question_waits_from_its_arrival_on(ticks, length, batch):
    arrivals, service = [tick * GRID for tick in ticks], length * GRID + GRID // 2  # never over when one arrives
    time = Time()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tessera.inference.modes.arrivals.EARLY", 4 * LOOK)
        answered = answer(lambda: time.sleep(service / 1e9), arrivals, batch, clock=time.clock, sleep=time.sleep)
    expected = [waited / 1e9 for waited in replay(arrivals, service, batch)]
    assert answered == pytest.approx(expected, abs=1e-3)


def test_arrivals_have_the_rate_and_the_spread_of_chance():
    moments = poisson(200.0, 20_000, seed=5)
    gaps = [b - a for a, b in pairwise(moments)]
    assert moments == sorted(moments)
    assert statistics.mean(gaps) == pytest.approx(5e6, rel=0.05)
    assert statistics.stdev(gaps) == pytest.approx(5e6, rel=0.05)  # that of an exponential is its mean
    assert poisson(200.0, 10, seed=5) == moments[:10]
    assert poisson(200.0, 10, seed=6) != moments[:10]


def test_a_server_that_falls_behind_cannot_hide_it():
    time = Time()
    rng = random.Random(1)
    arrivals = sorted(rng.randrange(10**9) for _ in range(100))  # in one second, for a server that takes two
    answered = answer(lambda: time.sleep(0.02), arrivals, 1, clock=time.clock, sleep=time.sleep)
    assert answered[-1] > 0.9
