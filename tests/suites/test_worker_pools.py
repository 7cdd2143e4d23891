"""Tests of cases with their own launch configuration: the requested workers are started, and no process remains."""

from __future__ import annotations

from dataclasses import replace

import psutil
import pytest

from tessera.errors import TesseraError
from tessera.launch import LaunchConfig
from tessera.measure.samples import Sampling
from tessera.results.record import Case
from tessera.results.store import Store
from tessera.suites.features import FEATURES, Feature
from tessera.suites.plan import RunPlan
from tessera.suites.run import run_plan
from tessera.suites.worker_pools import WorkerPools

pytestmark = pytest.mark.timeout(120)


def configure_launch(case: Case, base: LaunchConfig) -> LaunchConfig:
    """Return a launch configuration with the number of workers of the case."""
    if case.params["ranks"] < 1:
        raise TesseraError("no such launch")
    return replace(base, workers=case.params["ranks"])


@pytest.fixture(autouse=True)
def _register_features(monkeypatch):
    hooks = {"title": "Planned", "cases": "", "run": "tests.suites.fake_feature:run", "section": ""}
    monkeypatch.setitem(FEATURES, "planned", Feature(**hooks))
    monkeypatch.setitem(FEATURES, "ranked", Feature(**hooks, launch="tests.suites.test_worker_pools:configure_launch"))


class Quiet:
    def on_start(self, case, launch): ...

    def on_end(self, record, launch): ...


def make_case(ranks: int, name: str = "fine") -> Case:
    return Case(feature="ranked", name=name, params={"ranks": ranks})


def test_each_case_gets_its_ranks_and_new_ranks_for_every_launch(tmp_path):
    cases = (make_case(2), make_case(3), make_case(1), Case(feature="planned", name="fine"))
    existing = set(psutil.Process().children(recursive=True))
    with Store(tmp_path / "s.sqlite") as store:
        run = store.start_run("ranks")
        run_plan(RunPlan(cases=cases, sampling=Sampling(), launches=2), store, run, Quiet())
        records = list(store.read_records(run))
    assert [len(record.launches[0].ranks) for record in records] == [2, 3, 0, 0]
    assert all(len(record.launches) == 2 and record.status == "ok" for record in records)
    assert not set(psutil.Process().children(recursive=True)) - existing


def test_only_the_last_ranks_and_the_single_worker_are_kept():
    existing = set(psutil.Process().children())
    with WorkerPools(LaunchConfig(), [make_case(2)]) as pools:
        assert set(psutil.Process().children()) <= existing, "the default workers are not needed"
        pair = pools.get_workers(make_case(2))
        assert pools.get_workers(make_case(2, "again")) is pair
        single = pools.get_workers(make_case(1))
        assert single is pools.default
        three = pools.get_workers(make_case(3))
        assert three.run("tests.suites.test_worker_pools:get_rank") == [0, 1, 2]
        with pytest.raises(TesseraError, match="not started"):
            pair.run("tests.suites.test_worker_pools:get_rank")
        pools.restart()
        assert pools.get_workers(make_case(3)) is not three
        assert pools.get_workers(make_case(1)) is single


def get_rank(worker):
    return worker.rank


def test_an_impossible_launch_is_a_refused_record_and_does_not_stop_other_cases(tmp_path):
    with Store(tmp_path / "s.sqlite") as store:
        run = store.start_run("refused")
        cases = (make_case(0), make_case(1))
        run_plan(RunPlan(cases=cases, sampling=Sampling()), store, run, Quiet())
        outcomes = [(record.status, record.reason) for record in store.read_records(run)]
    assert outcomes == [("refused", "no such launch"), ("ok", "")]
