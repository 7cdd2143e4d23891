"""Tests of migration: records of a store of schema 1 are migrated, and every view shows them."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tessera.ab.section import build_table as build_ab_table
from tessera.cli.main import main
from tessera.coregrid.tables import write_conv_records
from tessera.inference.tables import write_inference_records
from tessera.operators.tables import print_side_by_side
from tessera.phased.tables import write_phases
from tessera.report.record_tables import print_records
from tessera.report.tables import write_table
from tessera.results.metrics import Metric
from tessera.results.record import RECORD_SCHEMA, Case, Record
from tessera.results.store import Store
from tessera.spatial.tables import write_halo

OLD_STORE = Path(__file__).parent / "data" / "store-v1.sqlite"
RUNS = (
    *("ops-1", "ops-2", "ops-model", "ops-fused-2", "ab-noise", "ab-other", "halo-validate", "halo-exchange"),
    *("halo-compute", "conv", "phases-1", "phases-2", "infer", "infer-operators", "infer-server"),
)

Read = Callable[[str], list[Record]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a copy of the store of schema 1."""
    return Path(shutil.copy(OLD_STORE, tmp_path / "old.sqlite"))


@pytest.fixture
def read(path: Path) -> Read:
    def read_run(name: str) -> list[Record]:
        with Store(path, create=False) as store:
            return list(store.read_records(store.get_run(name)))

    return read_run


def show(path: Path, *command: str) -> int:
    return main([*command, "--store", str(path)])


def test_every_record_has_the_new_schema_and_only_the_machine_in_its_conditions(path: Path) -> None:
    with Store(path, create=False) as store:
        records = [record for run in store.list_runs() for record in store.read_records(run)]
    assert len(records) > 30
    assert {record.schema for record in records} == {RECORD_SCHEMA}
    assert {name for record in records for name in record.conditions} <= {"load", "steal", "mhz"}


def test_verdicts_of_comparisons_move_from_notes_and_sides_from_ranks(read: Read) -> None:
    records = [*read("ab-noise"), *read("ab-other")]
    assert [record.verdict for record in records] == ["unresolved", "unresolved", "same"]
    for record in records:
        (samples,) = record.launches
        assert samples.ranks == ()
        assert {side: len(times) for side, times in record.details["sides"].items()} == {
            "a": len(samples.values),
            "b": len(samples.values),
        }
        assert "torch" in record.details["libraries_b"]
        assert record.notes == ()


def test_verdicts_of_ranks_move_from_notes(read: Read) -> None:
    (record,) = read("halo-validate")
    assert record.verdict == "passed"
    assert record.details["rank_verdicts"] == [
        {"rank": rank, "passed": True, "text": f"Validation passed for rank: {rank}"} for rank in range(2)
    ]
    assert record.notes == ()


def test_a_failed_validation_of_schema_1_is_read_as_failed() -> None:
    lines = ["Validation passed for rank: 0", "Validation failed for rank: 1: received pixels off by 1"]
    new = Record(case=Case(feature="halo", name="validate"), status="failed", reason=lines[1])
    old = {**new.to_json(), "schema": 1, "notes": lines, "conditions": {"transport": "gloo", "load": 0.5}}
    migrated = Record.from_json(old)
    assert migrated.verdict == "failed"
    assert [verdict["passed"] for verdict in migrated.details["rank_verdicts"]] == [True, False]
    assert (migrated.chosen, migrated.conditions) == ({"transport": "gloo"}, {"load": 0.5})


def test_results_move_from_conditions(read: Read) -> None:
    (exchange,) = read("halo-exchange")
    assert set(exchange.chosen) == {"transport", "layout"}
    (conv,) = read("conv")
    assert {"layout", "cores", "slices"} == set(conv.chosen)
    assert conv.details["bound"]
    (phases,) = read("phases-2")
    assert isinstance(phases.details["profile"], dict)
    assert phases.details["storage"]
    (operators,) = read("infer-operators")
    assert operators.details["kinds"]
    assert operators.details["layers"]
    assert operators.details["remarks"][0].startswith("operators timed by ")
    (server,) = read("infer-server")
    assert server.chosen["load_generator"]
    assert server.details["trials"]
    outputs = {(r.case.name, r.case.params["backend"]): r.details.get("output") for r in read("ops-1")}
    assert outputs["transpose", "torch"] == outputs["transpose", "numpy"] == "view"
    assert outputs["add", "torch"] is None


def test_tables_of_every_feature_show_old_records(path: Path, read: Read, capsys: pytest.CaptureFixture[str]) -> None:
    with Store(path, create=False) as store:
        run = store.get_run("latest")
    print_records(run, [record for name in RUNS for record in read(name)], "terminal", None)
    print_side_by_side(read("ops-1"), "time", "terminal", None)
    for name in ("halo-validate", "halo-exchange", "halo-compute"):
        write_halo(read(name), "terminal", sys.stdout)
    write_conv_records(read("conv"), "terminal", sys.stdout)
    write_phases(read("phases-2"), "terminal", sys.stdout, advise=False, profile=True)
    for name in ("infer", "infer-operators", "infer-server"):
        write_inference_records(read(name), "terminal", sys.stdout, top=5)
    shown = capsys.readouterr().out
    assert "Validation passed for rank: 1" in shown
    assert "transport shared" in shown, "the chosen transport stands in place of auto"
    text = io.StringIO()
    write_table(build_ab_table(read("ab-other"), "A and B"), "terminal", text)
    assert "same" in text.getvalue()


def test_commands_work_on_an_old_store(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert show(path, "list", "runs") == 0
    assert show(path, "compare", "ops-1", "ops-2") in (0, 1, 3)
    assert show(path, "history", "add", "--metric", "time") in (0, 1)
    assert show(path, "report", *RUNS, "-o", "page.html") == 0
    page = Path("page.html").read_text()
    assert "Validation" in page or "Exact" in page
    capsys.readouterr()
    for suffix in ("json", "csv", "md"):
        for run in ("ab-noise", "halo-validate", "infer-operators"):
            assert show(path, "export", run, "-o", f"{run}.{suffix}") == 0
    with Store(path, create=False) as store:
        old = list(store.read_records(store.get_run("ab-noise")))
    assert main(["export", "--import", "ab-noise.json", "--store", "new.sqlite"]) == 0
    with Store("new.sqlite", create=False) as store:
        assert list(store.read_records(store.get_run("ab-noise"))) == old


def test_new_records_join_an_old_store(path: Path) -> None:
    record = Record(case=Case(feature="ab", name="add"), verdict="faster", metrics={"ratio": Metric(0.9)})
    with Store(path, create=False) as store:
        run = store.start_run("new")
        store.add(run, record)
        assert list(store.read_records(run)) == [record]
