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
from tessera.inference.tune.table import format_certainty
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


def make_race_result(lead: float, bursts: int, out_of_time: bool = False) -> TuningResult:
    """Return a tuning result of two candidates; the bursts of the first are faster by `lead` than the second's."""
    rates = [100.0 + 3 * (number % 2) for number in range(bursts)]
    results = [
        CandidateResult(
            candidate=TuningCandidate(replica_set=ReplicaSet(engine=EAGER, replicas=1, threads=1), batch=batch),
            rounds=[Burst(factor * rate, (batch / rate,)) for rate in rates],
        )
        for batch, factor in ((4, 1 + lead), (2, 1.0))
    ]
    other = TuningCandidate(replica_set=ReplicaSet(engine=EAGER, replicas=2, threads=1), batch=2)
    results.append(CandidateResult(candidate=other, dropped="not tried", tried=False, out_of_time=out_of_time))
    return TuningResult(goal=TuningGoal(), results=tuple(results), cases={}, records=())


def test_the_lead_of_the_best_candidate_is_printed_with_its_interval():
    assert format_certainty(make_race_result(0.05, 9)) == [
        "2 of 3 candidates were tried",
        "+5% (+5% to +5%) ahead of torch-eager 1x1 batch 2",
    ]


def test_an_unresolved_lead_and_missing_time_are_printed():
    assert format_certainty(make_race_result(0.0, 9, out_of_time=True)) == [
        "2 of 3 candidates were tried; a longer --tune-time tries more",
        "not resolved against torch-eager 1x1 batch 2 (+0% to +0%): a longer --tune-time may resolve it",
    ]
    assert "too few bursts" in format_certainty(make_race_result(0.5, 3))[1]


def test_a_single_candidate_is_not_compared():
    assert make_tuning_result(1).compare_with_second() is None


def test_engines_that_cannot_run_the_file_are_omitted():
    said = []
    engines = find_usable_engines(Settings(model="net.onnx", engine="onnxruntime"), say=said.append)
    assert engines == [name for name, entry in ENGINES.items() if entry.files]
    assert all("runs torch modules, not ONNX files" in text for text in said)
    assert len(said) == sum(not entry.files and entry.supports_device("cpu") for entry in ENGINES.values())


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
    assert len(said) == sum(entry.supports_device("cpu") for entry in ENGINES.values()) - 1
    assert all(" is omitted: " in text for text in said)
