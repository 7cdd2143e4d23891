"""Tests of tuning on replicas: the best candidate can be repeated, and replicas restart after a candidate died."""

from __future__ import annotations

import pytest

from tessera.cli.infer_tune import format_command
from tessera.errors import BenchmarkFailed
from tessera.inference.cases import get_task
from tessera.inference.engines import ENGINES
from tessera.inference.replicas.placement import count_cores
from tessera.inference.settings import Settings
from tessera.inference.tune.race import Burst, CandidateResult, ReplicaSet, TuningCandidate, TuningGoal
from tessera.inference.tune.tuning import ReplicaRunner, TuningResult, find_usable_engines
from tessera.launch import LaunchConfig
from tests.inference.replicas.fragile import CALLS, VICTIM

EAGER = "torch-eager"


def make_tuning_result(replicas: int, goal: TuningGoal | None = None) -> TuningResult:
    """Return a tuning result with one candidate whose batches took one second."""
    candidate = TuningCandidate(replica_set=ReplicaSet(engine=EAGER, replicas=replicas, threads=1), batch=2)
    case = ReplicaRunner(Settings(model="resnet18")).build_case(candidate)
    standing = CandidateResult(candidate=candidate, screening=Burst(2.0, (1.0,)))
    return TuningResult(goal=goal or TuningGoal(), results=(standing,), cases={candidate: case}, records=())


def test_the_case_of_an_oversubscribed_candidate_has_force():
    forced, usual = make_tuning_result(count_cores() + 1), make_tuning_result(count_cores())
    (case,) = forced.cases.values()
    assert "share cores" in get_task(case).placement.check()[0], "warned of, not refused"
    assert "--force" in format_command(forced, LaunchConfig()).split()
    assert "--force" not in format_command(usual, LaunchConfig()).split()


def test_within_bound_compares_the_latency_with_the_bound():
    assert [make_tuning_result(1, TuningGoal(max_latency=bound)).within_bound for bound in (None, 1.5, 0.5)] == [
        True,
        True,
        False,
    ]


@pytest.mark.timeout(120)
def test_a_replica_set_is_restarted_after_the_death_of_a_replica(tmp_path):
    settings = Settings(model="tests.inference.replicas.fragile:build_fragile_network", image_size=32, engine=EAGER)
    replica_set = ReplicaSet(engine=EAGER, replicas=1, threads=1)
    doomed, other = (TuningCandidate(replica_set=replica_set, batch=batch) for batch in (1, 2))
    with ReplicaRunner(settings, env={VICTIM: str(tmp_path / "victim"), CALLS: "15"}) as track:
        track.open(doomed)
        track.open(other)
        with pytest.raises(BenchmarkFailed, match="SIGKILL"):
            [track.run_burst(doomed) for _ in range(20)]
        track.close(doomed)
        assert track.run_burst(other).rate > 0
        track.close(other)


def test_omitted_engines_are_reported_with_the_reason():
    said = []
    result = find_usable_engines(Settings(model="resnet18", engine="openvino", hint="throughput"), say=said.append)
    assert result == ["openvino"]
    assert len(said) == len(ENGINES) - 1
    assert all(" is omitted: " in text for text in said)
