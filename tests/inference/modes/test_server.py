"""A server whose replica dies: the trials before that are kept and marked, and the cause is told."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tessera.errors import BenchmarkFailed
from tessera.inference.modes.load import Load
from tessera.inference.modes.server import server
from tessera.inference.settings import Settings
from tessera.inference.task import Task
from tessera.measure.samples import Sampling
from tests.inference.measures.synthetic import Invented

DEATH = "rank 1 of 2 died of SIGKILL"
TASK = Task(settings=Settings(), load=Load(mode="server", max_latency=0.1, generator="tessera"))


class Serving(Invented):
    """A crew that answers in time, and dies when it is asked for the trial with a number."""

    name = "network"

    def __init__(self, *, dies_in: int | None = None, dies_in_trial: int | None = None) -> None:
        super().__init__(2, lambda replica, window: 0.05, dies_in=dies_in)
        self._dies_in_trial, self.trials = dies_in_trial, 0
        self.replicas = SimpleNamespace(run=self._serve)

    def _serve(self, target: str, name: str, rate: float, questions: int) -> list[tuple[list[float], float]]:
        if self.trials == self._dies_in_trial:
            raise BenchmarkFailed(DEATH)
        self.trials += 1
        return [([0.05] * questions, questions / rate)] * self.size


def test_trials_before_a_death_are_kept_and_marked():
    found = server(Serving(dies_in_trial=2), TASK, Sampling(budget=0.5))
    assert DEATH in str(found.error)
    assert len(found.conditions["trials"]) == 2
    assert found.samples.stopped_by == "failure"
    assert found.metrics["throughput"].value == max(trial["rate"] for trial in found.conditions["trials"])
    assert "broken off: 2 trials before the failure kept" in found.notes


@pytest.mark.parametrize("death", [{"dies_in_trial": 0}, {"dies_in": 4}])
def test_a_death_before_the_first_answers_is_told_by_its_cause(death):
    crew = Serving(**death)
    with pytest.raises(BenchmarkFailed, match=DEATH):
        server(crew, TASK, Sampling(budget=0.5))
    assert crew.trials == 0, "nobody is asked after a death"


def test_a_rate_far_beyond_what_is_reached_asks_no_more_than_shows_it():
    crew = Serving()
    asked = []
    serve = crew._serve
    crew.replicas = SimpleNamespace(run=lambda *args: asked.append(args[-1]) or serve(*args))
    task = replace(TASK, load=replace(TASK.load, target_rate=1e6))
    found = server(crew, task, Sampling(budget=2.0))
    assert sum(asked) * crew.size <= 2 * found.metrics["capacity"].value * (0.5 + 0.1) + 2 * crew.size
