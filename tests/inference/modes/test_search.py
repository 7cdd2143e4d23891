"""Tests that the search for the highest rate ends near the true limit of a synthetic server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.errors import BenchmarkFailed
from tessera.inference.modes.server import MIN_CAPACITY_SHARE, RATE_RESOLUTION, RateTrial, find_highest_rate


def make_server_trial(limit: float, bound: float = 0.1):
    """Return the trial function of a synthetic server that meets the latency bound up to a rate of `limit`."""

    def trial(rate: float) -> RateTrial:
        took = bound / 2 if rate <= limit else 2 * bound
        latencies = (bound / 2, *(took,) * 99)  # the first query has no queueing delay
        return RateTrial(rate=rate, latencies=latencies, achieved=rate, bound=bound)

    return trial


@given(st.floats(1, 1000), st.floats(MIN_CAPACITY_SHARE * 1.01, 0.999))
def test_the_search_ends_near_the_limit(capacity, share):
    limit = share * capacity
    search = find_highest_rate(make_server_trial(limit), capacity)
    assert search.best is not None
    assert search.best.rate <= limit
    failed = [trial.rate for trial in search.trials if not trial.meets_bound]
    nearest = min([*failed, capacity])
    assert nearest / search.best.rate < RATE_RESOLUTION + 0.05 or len(search.trials) == 12


def test_the_search_finds_no_rate_if_all_rates_are_too_slow():
    search = find_highest_rate(make_server_trial(0.0), 100.0)
    assert search.best is None
    assert all(not trial.meets_bound for trial in search.trials)
    assert min(trial.rate for trial in search.trials) >= MIN_CAPACITY_SHARE * 100


def test_one_trial_is_enough_if_the_minimum_latency_exceeds_the_bound():
    def trial(rate: float) -> RateTrial:
        return RateTrial(rate=rate, latencies=(0.11, 0.3, 0.2), achieved=rate, bound=0.1)

    search = find_highest_rate(trial, 100.0)
    assert search.best is None
    assert len(search.trials) == 1


def test_a_failed_trial_ends_the_search_and_earlier_trials_are_kept():
    sound, asked = make_server_trial(60.0), []

    def trial(rate: float) -> RateTrial:
        asked.append(rate)
        if len(asked) == 3:
            raise BenchmarkFailed("rank 0 of 1 died of SIGKILL")
        return sound(rate)

    search = find_highest_rate(trial, 100.0)
    assert [one.rate for one in search.trials] == asked[:2] == [50.0, 75.0]
    assert search.best is not None
    assert search.best.rate == 50.0
    assert "SIGKILL" in str(search.error)


def test_one_query_in_a_hundred_may_exceed_the_bound():
    late = RateTrial(rate=1.0, latencies=(0.1,) * 991 + (5.0,) * 9, achieved=1.0, bound=0.2)
    too_many = RateTrial(rate=1.0, latencies=(0.1,) * 970 + (5.0,) * 30, achieved=1.0, bound=0.2)
    assert late.meets_bound
    assert not too_many.meets_bound
    assert late.latency == pytest.approx(0.1)
