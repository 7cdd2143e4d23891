"""Tests of comparing two runs: verdicts, excluded cases, software differences, and speed."""

import math
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tessera.errors import TesseraError
from tessera.measure.samples import Samples
from tessera.results.compare import compare
from tessera.results.observation import make_observation
from tessera.results.record import Case, Record
from tessera.results.store import Store
from tests.results.synthetic import make_measured_record


@pytest.fixture
def case() -> Record:
    return make_measured_record("add", 1e-3, np.random.default_rng(), environment={"fingerprint": "f", "threads": 1})


def test_a_record_compared_with_itself_is_the_same(case: Record) -> None:
    comparison = compare([case], [case])
    (only,) = comparison.cases
    assert (only.verdict, only.judgement.ratio, only.launches) == ("same", 1.0, (5, 5))
    assert only.before == only.after == pytest.approx(1e-3, rel=0.05)
    assert not comparison.regressed
    assert comparison.excluded == ()


@pytest.mark.parametrize(
    ("changes", "kind", "reason"),
    [
        ({"version": "2"}, "version", "the benchmark was edited: version 1 in A, 2 in B"),
        ({"unit": "B"}, "unit", "s (lower is better) in A, B (lower is better) in B"),
        (
            {"environment": {"fingerprint": "g", "threads": 2}},
            "fingerprint",
            "other conditions: threads 1 in A, 2 in B",
        ),
        ({"status": "failed", "reason": "died"}, "newly failed", "failed in B: died"),
        ({"status": "timed_out", "reason": "9 s"}, "newly failed", "timed out in B: 9 s"),
        ({"status": "refused", "reason": "too big"}, "newly refused", "refused in B: too big"),
        ({"launches": ()}, "figure", "no samples in B"),
        (
            {"launches": (Samples(values=(0.0,)),)},
            "figure",
            "a value in B is not a positive number, so there is no ratio",
        ),
        (
            {"launches": (Samples(values=(math.nan,)),)},
            "figure",
            "a value in B is not a positive number, so there is no ratio",
        ),
    ],
)
def test_cases_that_may_not_be_compared_are_excluded(case: Record, changes: dict, kind: str, reason: str) -> None:
    comparison = compare([case], [replace(case, **changes)])
    assert comparison.cases == ()
    assert [(a.key, a.kind, a.reason) for a in comparison.excluded] == [("ops/add", kind, reason)]
    assert comparison.regressed == (kind == "newly failed")


def test_failures_in_run_a(case: Record) -> None:
    failed = replace(case, status="failed", reason="died")
    assert [a.kind for a in compare([failed], [case]).excluded] == ["fixed"]
    assert [a.kind for a in compare([failed], [failed]).excluded] == ["not measured"]
    neither = replace(case, direction="")
    assert compare([neither], [neither]).excluded[0].reason == "neither lower nor higher is better"


def test_cases_in_one_run_only(case: Record) -> None:
    multiplication = replace(case, case=Case(feature="ops", name="mul"))
    comparison = compare([case], [multiplication])
    assert [(a.key, a.kind) for a in comparison.excluded] == [("ops/add", "only in A"), ("ops/mul", "only in B")]


def test_records_of_different_library_versions_are_compared_and_the_versions_listed(case: Record) -> None:
    a, b = (
        replace(case, environment={"fingerprint": "f", "python": "3.11", "libraries": {"torch": version}})
        for version in ("2.13.0", "2.14.0")
    )
    comparison = compare([a], [b])
    assert len(comparison.cases) == 1
    assert [(d.name, d.before, d.after) for d in comparison.software] == [("libraries.torch", "2.13.0", "2.14.0")]


def test_a_shift_of_all_cases_is_reported() -> None:
    rng = np.random.default_rng()
    a, b = ([make_measured_record(f"op{i}", level, rng) for i in range(12)] for level in (1e-3, 1.1e-3))
    assert compare(a, b).common_ratio == pytest.approx(1.1, abs=0.02)
    assert compare(a, a).common_ratio is None
    assert compare(a[:5], b[:5]).common_ratio is None


def test_records_and_observations_give_the_same(case: Record) -> None:
    slower = replace(case, launches=tuple(replace(s, values=tuple(2 * v for v in s.values)) for s in case.launches))
    assert compare([case], [slower]) == compare([make_observation(case)], [make_observation(slower)])


@pytest.mark.parametrize("options", [{"threshold": -0.1}, {"threshold": 3}, {"threshold": math.nan}, {"alpha": 0}])
def test_invalid_thresholds_are_refused(options: dict) -> None:
    with pytest.raises(TesseraError):
        compare([], [], **options)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_runs_in_a_store_of_200_000_records(tmp_path: Path) -> None:
    """Reading and judging 2 x 1,000 cases takes less than one second of CPU time."""
    rng = np.random.default_rng()
    with Store(tmp_path / "s.sqlite") as store:
        store._db.execute("PRAGMA synchronous = OFF")  # to build the store faster
        base = [make_measured_record(f"op{i}", 1e-3, rng) for i in range(1000)]
        slow = [make_measured_record(f"op{i}", 1.1e-3 if i < 10 else 1e-3, rng) for i in range(1000)]
        for number in range(200):
            store.add_all(store.start_run(f"r{number}"), slow if number == 150 else base)
    began, began_cpu = time.perf_counter(), time.process_time()
    with Store(tmp_path / "s.sqlite", create=False) as store:
        a, b = (store.read_observations(store.get_run(name)) for name in ("r20", "r150"))
        comparison = compare(a, b)
    seconds, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    print(f"compared {len(comparison.cases)} cases in {seconds:.2f} s ({cpu:.2f} s of CPU time)")
    assert {case.key for case in comparison.get_cases("slower")} >= {f"ops/op{i}" for i in range(10)}
    assert len(comparison.get_cases("slower")) + len(comparison.get_cases("faster")) <= 11
    assert cpu < 1  # CPU time, because wall time depends on other processes
