"""Tuning on replicas: a best that can be run again, and a team that goes on after one of its candidates died."""

from __future__ import annotations

import pytest

from tessera.cli.infer_tune import again
from tessera.errors import BenchmarkFailed
from tessera.inference.cases import task_of
from tessera.inference.engines import ENGINES
from tessera.inference.replicas.placement import cores_here
from tessera.inference.settings import Settings
from tessera.inference.tune.candidates import Candidate, Team
from tessera.inference.tune.goal import Goal
from tessera.inference.tune.race import Burst, Standing
from tessera.inference.tune.track import ReplicaTrack
from tessera.inference.tune.tuning import Tuned, usable_engines
from tessera.launch import LaunchConfig
from tests.inference.replicas.fragile import CALLS, VICTIM

EAGER = "torch-eager"


def tuned(replicas: int, goal: Goal | None = None) -> Tuned:
    """A tuning of one candidate, of batches that took a second."""
    candidate = Candidate(team=Team(engine=EAGER, replicas=replicas, threads=1), batch=2)
    case = ReplicaTrack(Settings(model="resnet18")).case_of(candidate)
    standing = Standing(candidate=candidate, heat=Burst(2.0, (1.0,)))
    return Tuned(goal=goal or Goal(), standings=(standing,), cases={candidate: case}, records=())


def test_a_best_beyond_the_cores_is_forced_when_it_is_run_by_itself():
    forced, usual = tuned(cores_here() + 1), tuned(cores_here())
    (case,) = forced.cases.values()
    assert "share cores" in task_of(case).placement.check()[0], "warned of, not refused"
    assert "--force" in again(forced, LaunchConfig()).split()
    assert "--force" not in again(usual, LaunchConfig()).split()


def test_whether_the_bound_is_kept_is_told_by_the_latency():
    assert [tuned(1, Goal(max_latency=bound)).within_bound for bound in (None, 1.5, 0.5)] == [True, True, False]


@pytest.mark.timeout(120)
def test_a_team_whose_replica_died_runs_its_other_candidates_again(tmp_path):
    settings = Settings(model="tests.inference.replicas.fragile:fragile", image_size=32, engine=EAGER)
    team = Team(engine=EAGER, replicas=1, threads=1)
    doomed, other = (Candidate(team=team, batch=batch) for batch in (1, 2))
    with ReplicaTrack(settings, env={VICTIM: str(tmp_path / "victim"), CALLS: "15"}) as track:
        track.open(doomed)
        track.open(other)
        with pytest.raises(BenchmarkFailed, match="SIGKILL"):
            [track.burst(doomed) for _ in range(20)]
        track.close(doomed)
        assert track.burst(other).rate > 0
        track.close(other)


def test_engines_that_are_left_out_are_named_with_the_reason():
    said = []
    found = usable_engines(Settings(model="resnet18", engine="openvino", hint="throughput"), say=said.append)
    assert found == ["openvino"]
    assert len(said) == len(ENGINES) - 1
    assert all(" is left out: " in text for text in said)
