"""Cases that bring their own launch: the right workers for each, and none left behind."""

from __future__ import annotations

from dataclasses import replace

import psutil
import pytest

from tessera.errors import TesseraError
from tessera.launch import LaunchConfig
from tessera.measure.samples import Sampling
from tessera.results.record import Case
from tessera.results.store import Store
from tessera.suites.crews import Crews
from tessera.suites.features import FEATURES, Feature
from tessera.suites.plan import Plan
from tessera.suites.run import run_plan

pytestmark = pytest.mark.timeout(120)


def launch(case: Case, base: LaunchConfig) -> LaunchConfig:
    """As many processes as the case says."""
    if case.params["ranks"] < 1:
        raise TesseraError("no such launch")
    return replace(base, workers=case.params["ranks"])


@pytest.fixture(autouse=True)
def planned(monkeypatch):
    doors = {"title": "Planned", "cases": "", "run": "tests.suites.planned:run", "section": ""}
    monkeypatch.setitem(FEATURES, "planned", Feature(**doors))
    monkeypatch.setitem(FEATURES, "ranked", Feature(**doors, launch="tests.suites.test_crews:launch"))


class Quiet:
    def begins(self, case, launch): ...

    def ends(self, record, launch): ...


def ranked(ranks: int, name: str = "fine") -> Case:
    return Case(feature="ranked", name=name, params={"ranks": ranks})


def test_each_case_gets_the_ranks_it_asks_for_and_new_ones_for_every_launch(tmp_path):
    cases = (ranked(2), ranked(3), ranked(1), Case(feature="planned", name="fine"))
    others = set(psutil.Process().children(recursive=True))
    with Store(tmp_path / "s.sqlite") as store:
        run = store.start_run("ranks")
        run_plan(Plan(cases=cases, sampling=Sampling(), launches=2), store, run, Quiet())
        found = list(store.records(run))
    assert [len(record.launches[0].ranks) for record in found] == [2, 3, 0, 0]
    assert all(len(record.launches) == 2 and record.status == "ok" for record in found)
    assert not set(psutil.Process().children(recursive=True)) - others


def test_only_the_last_ranks_are_kept_and_lone_workers_stay():
    others = set(psutil.Process().children())
    with Crews(LaunchConfig(), [ranked(2)]) as crews:
        assert set(psutil.Process().children()) <= others, "nobody needs the run's own workers"
        pair = crews.of(ranked(2))
        assert crews.of(ranked(2, "again")) is pair
        lone = crews.of(ranked(1))
        assert lone is crews.own
        three = crews.of(ranked(3))
        assert three.run("tests.suites.test_crews:rank") == [0, 1, 2]
        with pytest.raises(TesseraError, match="not started"):
            pair.run("tests.suites.test_crews:rank")
        crews.restart()
        assert crews.of(ranked(3)) is not three
        assert crews.of(ranked(1)) is lone


def rank(worker):
    return worker.rank


def test_a_launch_that_cannot_be_is_one_refused_record_and_stops_no_other(tmp_path):
    with Store(tmp_path / "s.sqlite") as store:
        run = store.start_run("refused")
        cases = (ranked(0), ranked(1))
        run_plan(Plan(cases=cases, sampling=Sampling()), store, run, Quiet())
        found = [(record.status, record.reason) for record in store.records(run)]
    assert found == [("refused", "no such launch"), ("ok", "")]
