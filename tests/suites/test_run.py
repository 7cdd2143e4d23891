"""Tests of running plans with real workers: every case gets a record, and a failure does not stop other cases."""

from __future__ import annotations

import time
from types import SimpleNamespace

import psutil
import pytest

from tessera.launch import LaunchConfig
from tessera.measure.samples import Sampling
from tessera.results.record import Case
from tessera.results.store import Store
from tessera.suites.features import FEATURES, Feature
from tessera.suites.plan import RunPlan
from tessera.suites.run import run_plan

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True)
def _register_feature(monkeypatch):
    feature = Feature(title="Planned", cases="", run="tests.suites.fake_feature:run", section="")
    monkeypatch.setitem(FEATURES, "planned", feature)


class ListenerLog:
    def __init__(self, stop_after=None):
        self.ended = []
        self.stop_after = stop_after

    def on_start(self, case, launch):
        if self.stop_after is not None and len(self.ended) >= self.stop_after:
            raise KeyboardInterrupt

    def on_end(self, record, launch):
        self.ended.append((record.case.name, launch, record.status))


def make_plan(*names, **options):
    cases = tuple(Case(feature="planned", name=name) for name in names)
    return RunPlan(cases=cases, sampling=Sampling(budget=0.1), **options)


def test_every_outcome_is_a_record_and_does_not_stop_other_cases(tmp_path):
    names = ("fine", "crashes", "raises", "refuses", "hangs", "kills the worker", "also fine")
    log = ListenerLog()
    existing = set(psutil.Process().children(recursive=True))
    with Store(tmp_path / "s.sqlite") as store:
        run = store.start_run("fates")
        outcome = run_plan(make_plan(*names, launches=2, launch=LaunchConfig(time_limit=5.0)), store, run, log)
        records = {record.case.name: record for record in store.read_records(run)}
    assert {name: record.status for name, record in records.items()} == {
        "fine": "ok",
        "crashes": "failed",
        "raises": "failed",
        "refuses": "refused",
        "hangs": "timed_out",
        "kills the worker": "failed",
        "also fine": "ok",
    }
    assert "SIGSEGV" in records["crashes"].reason
    assert "ZeroDivisionError: planned" in records["raises"].reason
    assert "got 'x'; allowed: y" in records["refuses"].reason
    assert len(records["fine"].launches) == len(records["also fine"].launches) == 2
    assert outcome.statuses["failed"] + outcome.statuses["timed_out"] == 4
    assert outcome.unfinished == 0
    assert [entry for entry in log.ended if entry[1] == 2] == [("fine", 2, "ok"), ("also fine", 2, "ok")]
    assert not set(psutil.Process().children(recursive=True)) - existing


def test_each_launch_is_a_new_process(tmp_path):
    pids = []

    class Pids(ListenerLog):
        def on_end(self, record, launch):
            pids.append(record.environment["pid"])

    with Store(tmp_path / "s.sqlite") as store:
        run_plan(make_plan("fine", launches=3), store, store.start_run("a"), Pids())
    assert len(set(pids)) == 3


def test_an_interrupted_run_resumes_where_it_stopped(tmp_path):
    plan = make_plan("a", "b", "c", launches=2)
    with Store(tmp_path / "s.sqlite") as store:
        run = store.start_run("night")
        with pytest.raises(KeyboardInterrupt):
            run_plan(plan, store, run, ListenerLog(stop_after=4))
        assert [len(r.launches) for r in store.read_records(run)] == [2, 1, 1]
        again = ListenerLog()
        run_plan(plan, store, store.start_run("night", resume=True), again, resume=True)
        assert again.ended == [("b", 2, "ok"), ("c", 2, "ok")]
        assert [len(r.launches) for r in store.read_records(run)] == [2, 2, 2]


def test_a_failed_case_is_tried_again_on_resume(tmp_path):
    with Store(tmp_path / "s.sqlite") as store:
        run = store.start_run("night")
        run_plan(make_plan("raises", "refuses", "fine"), store, run, ListenerLog())
        again = ListenerLog()
        run_plan(make_plan("raises", "refuses", "fine"), store, run, again, resume=True)
    assert again.ended == [("raises", 1, "failed")]


def test_a_spent_budget_leaves_the_rest_for_later(tmp_path):
    with Store(tmp_path / "s.sqlite") as store:
        outcome = run_plan(make_plan("a", "b", "c", budget=0.01), store, store.start_run("short"), ListenerLog())
    assert outcome.statuses["ok"] == 1
    assert outcome.unfinished == 2


def test_launches_that_did_not_fit_the_budget_are_left_for_later(tmp_path, monkeypatch):
    class Late(ListenerLog):
        hours = 0.0

        def on_end(self, record, launch):
            super().on_end(record, launch)
            if launch == 2:
                self.hours += 1

    log = Late()
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + 3600 * log.hours)
    monkeypatch.setattr("tessera.suites.run.time", clock)
    with Store(tmp_path / "s.sqlite") as store:
        run = store.start_run("short")
        outcome = run_plan(make_plan("a", "b", launches=3, budget=3000.0), store, run, log)
        assert [len(r.launches) for r in store.read_records(run)] == [2, 1]
    assert outcome.statuses["ok"] == 2
    assert outcome.unfinished == 2


def test_a_failed_launch_keeps_earlier_launches(tmp_path):
    case = Case(feature="planned", name="fails the second time", params={"mark": str(tmp_path / "mark")})
    plan = RunPlan(cases=(case,), sampling=Sampling(budget=0.1), launches=2)
    with Store(tmp_path / "s.sqlite") as store:
        run = store.start_run("night")
        run_plan(plan, store, run, ListenerLog())
        (record,) = store.read_records(run)
    assert (record.status, len(record.launches)) == ("failed", 1)


def test_a_crash_is_reported_with_the_last_output(tmp_path):
    with Store(tmp_path / "s.sqlite") as store:
        run = store.start_run("night")
        run_plan(make_plan("speaks and crashes"), store, run, ListenerLog())
        (record,) = store.read_records(run)
    assert "was killed by SIGKILL; last output: something is wrong with my hat" in record.reason


@pytest.mark.ranks
@pytest.mark.parametrize("spawn", ["processes", "torchrun", "mpiexec"])
def test_ranks_are_joined_sample_by_sample(tmp_path, spawn):
    with Store(tmp_path / "s.sqlite") as store:
        run = store.start_run("ranks")
        run_plan(make_plan("fine", launch=LaunchConfig(spawn=spawn, workers=2)), store, run, ListenerLog())
        (record,) = store.read_records(run)
    (samples,) = record.launches
    assert len(samples.ranks) == 2
    assert samples.values == tuple(max(pair) for pair in zip(*samples.ranks, strict=True))
    assert samples.joined_by == "max over ranks"
