"""Tests of mode server when a replica dies: earlier trials are kept, and the error names the cause."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tessera.errors import BenchmarkFailed
from tessera.inference.modes.load import Load
from tessera.inference.modes.server import measure_server
from tessera.measure.samples import Sampling
from tests.inference.measures.synthetic import SyntheticReplicas

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
