"""Tests of mode server: the search for the highest rate ends near the true limit, and a replica may die."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.errors import BenchmarkFailed
from tessera.inference.modes.load import Load
from tessera.inference.modes.load_modes import (
    MIN_CAPACITY_SHARE,
    RATE_RESOLUTION,
    RateTrial,
    find_highest_rate,
    measure_server,
)
from tessera.measure.samples import Sampling
from tests.inference.measures.synthetic import SyntheticReplicas


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


DEATH = "rank 1 of 2 died of SIGKILL"
LOAD = Load(mode="server", max_latency=0.1, generator="tessera")


class ServingReplicas(SyntheticReplicas):
    """Synthetic replicas that answer within the latency bound, and die in trial `dies_in_trial`."""

    name = "network"

    def __init__(self, *, dies_in: int | None = None, dies_in_trial: int | None = None) -> None:
        super().__init__(2, lambda replica, window: 0.05, dies_in=dies_in)
        self._dies_in_trial, self.trials = dies_in_trial, 0
        self.pool = SimpleNamespace(run=self._serve)

    def _serve(self, target: str, name: str, rate: float, queries: int) -> list[tuple[list[float], float]]:
        if self.trials == self._dies_in_trial:
            raise BenchmarkFailed(DEATH)
        self.trials += 1
        return [([0.05] * queries, queries / rate)] * self.size


def test_trials_before_a_death_are_kept_and_marked():
    outcome = measure_server(ServingReplicas(dies_in_trial=2), LOAD, Sampling(budget=0.5))
    assert DEATH in str(outcome.error)
    assert len(outcome.details["trials"]) == 2
    assert outcome.samples.stopped_by == "failure"
    assert outcome.metrics["throughput"].value == max(trial["rate"] for trial in outcome.details["trials"])
    assert "ended early: only the 2 trials before the failure count" in outcome.notes


@pytest.mark.parametrize("death", [{"dies_in_trial": 0}, {"dies_in": 4}])
def test_a_death_before_the_first_trial_is_an_error_with_its_cause(death):
    replicas = ServingReplicas(**death)
    with pytest.raises(BenchmarkFailed, match=DEATH):
        measure_server(replicas, LOAD, Sampling(budget=0.5))
    assert replicas.trials == 0, "no trial after a death"


def test_the_number_of_queries_is_limited_far_above_the_capacity():
    replicas = ServingReplicas()
    counts = []
    serve = replicas._serve
    replicas.pool = SimpleNamespace(run=lambda *args: counts.append(args[-1]) or serve(*args))
    load = replace(LOAD, target_rate=1e6)
    outcome = measure_server(replicas, load, Sampling(budget=2.0))
    assert sum(counts) * replicas.size <= 2 * outcome.metrics["capacity"].value * (0.5 + 0.1) + 2 * replicas.size
