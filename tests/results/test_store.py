import sqlite3
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.errors import TesseraError
from tessera.results.observation import observe
from tessera.results.record import Case, Record
from tessera.results.schema import APPLICATION, STORE_SCHEMA
from tessera.results.store import Store, default_store_path
from tests.results.synthetic import exactly, measured, records


@pytest.fixture
def store(tmp_path: Path):
    with Store(tmp_path / "s.sqlite") as opened:
        yield opened


def small(name: str = "add", feature: str = "ops", **others: object) -> Record:
    return Record(case=Case(feature=feature, name=name), **others)  # type: ignore[arg-type]


@settings(deadline=None, max_examples=40)
@given(st.lists(records(), max_size=4))
def test_records_come_back_exactly(several: list[Record]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.sqlite"
        with Store(path) as store:
            store.add_all(store.start_run("r"), several)
        latest = {record.case.key: record for record in several}
        with Store(path, create=False) as store:
            found = list(store.records(store.run("r")))
            observed = list(store.observations(store.run("r")))
    assert exactly(found) == exactly(list(latest.values()))
    assert exactly([o.figures for o in observed]) == exactly([observe(r).figures for r in found])
    assert [(o.key, o.status, o.reason) for o in observed] == [(r.case.key, r.status, r.reason) for r in found]


def test_text_that_was_never_text_comes_back_too(store: Store) -> None:
    record = small(name=b"\xff.so".decode("utf-8", "surrogateescape"), notes=("a\0b",))
    store.add(store.start_run("r"), record)
    assert list(store.records(store.run("r"))) == [record]


def test_the_order_is_that_of_the_cases_and_filters_filter(store: Store) -> None:
    run = store.start_run("r")
    for feature, name in (("ops", "conv2d"), ("ops", "add"), ("halo", "conv")):
        store.add(run, small(name, feature))
    assert [r.case.name for r in store.records(run)] == ["conv2d", "add", "conv"]
    assert [r.case.name for r in store.records(run, feature="ops")] == ["conv2d", "add"]
    assert [r.case.name for r in store.records(run, name_glob="conv*")] == ["conv2d", "conv"]
    assert [o.key for o in store.observations(run, "ops", "a*")] == ["ops/add"]


def test_adding_again_replaces_in_place(store: Store) -> None:
    run = store.start_run("r")
    store.add(run, small("a", status="failed", reason="died", environment={"host": "x"}))
    store.add(run, small("b"))
    store.add(run, small("a", environment={"host": "y"}))
    assert list(store.records(run)) == [small("a", environment={"host": "y"}), small("b")]


def test_a_reader_may_write_while_it_reads(store: Store) -> None:
    run, other = store.start_run("r"), store.start_run("s")
    store.add_all(run, [small("a"), small("b")])
    for record in store.records(run):
        store.add(other, record)
    assert store.counts(other) == {"ok": 2}


def test_environments_are_stored_once(store: Store) -> None:
    run = store.start_run("r")
    for number in range(20):
        store.add(run, small(f"op{number}", environment={"b": 1, "a": number % 2}))
        store.add(run, small(f"op{number}", feature="halo", environment={"a": number % 2, "b": 1}))
    with sqlite3.connect(store.path) as db:
        assert db.execute("SELECT count(*) FROM environments").fetchone() == (2,)
    db.close()


def test_resume_skips_what_was_measured_or_refused(store: Store) -> None:
    run = store.start_run("r", suite="quick")
    for status in ("ok", "failed", "refused", "timed_out"):
        store.add(run, small(status, status=status, reason="because"))
    again = store.start_run("r", resume=True)
    assert again == run == store.start_run(suite="quick", resume=True)
    assert store.finished_keys(again) == {"ops/ok": "ok", "ops/refused": "refused"}
    assert store.counts(run) == {"failed": 1, "ok": 1, "refused": 1, "timed_out": 1}


def test_what_cannot_be_resumed_says_so(store: Store) -> None:
    run = store.start_run("nightly", suite="quick")
    with pytest.raises(TesseraError, match=r"already an unfinished run.*--resume"):
        store.start_run("nightly")
    store.finish_run(run)
    for attempt in ({"name": "nightly"}, {"suite": "quick"}, {"name": "nightli"}):
        with pytest.raises(TesseraError):
            store.start_run(**attempt, resume=True)
    with pytest.raises(TesseraError, match="already a finished run"):
        store.start_run("nightly")


def test_runs_are_named_for_the_day_and_found_from_the_end(store: Store) -> None:
    names = [store.start_run().name for _ in range(3)]
    day = names[0].removesuffix("-1")
    assert names == [f"{day}-1", f"{day}-2", f"{day}-3"]
    assert [store.run(name).name for name in ("latest", "latest~1", "latest~2")] == names[::-1]
    with pytest.raises(TesseraError, match=f"did you mean .*{day}-3"):
        store.run(f"{day}-4")
    with pytest.raises(TesseraError, match="no such run"):
        store.run("latest~3")


@pytest.mark.parametrize("name", ["", " ", "a/b", "-x", "latest", "latest~1", "x.json", "x ", "x" * 101, "a\nb"])
def test_names_that_mean_something_else_are_refused(store: Store, name: str) -> None:
    with pytest.raises(TesseraError, match="not a name"):
        store.start_run(name)


def test_deleting_a_run_leaves_the_others(store: Store) -> None:
    one, two = store.start_run("one"), store.start_run("two")
    store.add(one, small(environment={"host": "x"}))
    store.add(two, small(environment={"host": "y"}))
    store.delete_run(one)
    assert [run.name for run in store.runs()] == ["two"]
    assert next(store.records(two)).environment == {"host": "y"}
    store.add(two, small("new", environment={"host": "z"}))
    assert [r.environment["host"] for r in store.records(two)] == ["y", "z"]
    with pytest.raises(TesseraError, match="deleted meanwhile"):
        store.add(one, small())


def test_all_or_none(store: Store) -> None:
    run = store.start_run("r")
    with pytest.raises(TypeError):
        store.add_all(run, [small("a"), small("b", conditions={"not plain": object()})])
    assert list(store.records(run)) == []


def test_a_full_disk_is_one_line_and_loses_nothing(store: Store) -> None:
    run = store.start_run("r")
    record = measured("a", 1e-3, np.random.default_rng())
    store.add(run, record)
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages + 10}")  # SQLite's own error, as of a full disk
    added = [record]

    def fill() -> None:
        for number in range(1000):
            store.add(run, following := replace(record, case=Case(feature="ops", name=f"b{number}")))
            added.append(following)

    with pytest.raises(TesseraError, match="full: make room") as caught:
        fill()
    assert "\n" not in str(caught.value)
    assert list(store.records(run)) == added


def test_two_commands_may_use_one_store(store: Store) -> None:
    run = store.start_run("r")
    with Store(store.path) as other:
        theirs = other.start_run("s")
        for number in range(5):
            store.add(run, small(f"a{number}"))
            other.add(theirs, small(f"b{number}"))
    assert store.counts(run) == store.counts(store.run("s")) == {"ok": 5}


def test_a_store_in_memory_leaves_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ranks that follow have one, so that they run the same code as the rank that writes."""
    monkeypatch.chdir(tmp_path)
    with Store(":memory:") as store:
        store.add(run := store.start_run("r"), small())
        assert list(store.records(run)) == [small()]
    assert list(tmp_path.iterdir()) == []


def test_the_default_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TESSERA_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    with Store() as store:
        assert store.path == default_store_path() == Path(".tessera/results.sqlite")
    assert (tmp_path / ".tessera" / "results.sqlite").exists()
    monkeypatch.setenv("TESSERA_STORE", str(tmp_path / "other.sqlite"))
    assert default_store_path() == tmp_path / "other.sqlite"


def foreign(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE songs (title)")
    db.close()


def newer(path: Path) -> None:
    Store(path).close()
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {STORE_SCHEMA + 1}")
    db.close()


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.write_text("not a database, only words " * 100), "is not a store"),
        (lambda path: path.write_bytes(bytes(4096)), "is not a store"),
        (foreign, "is not a store"),
        (newer, "newer schema.*upgrade"),
        (lambda path: path.mkdir(), "directory"),
    ],
)
def test_what_is_not_a_store_is_left_alone(tmp_path: Path, make, message: str, create: bool) -> None:
    path = tmp_path / "x.sqlite"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(TesseraError, match=message) as caught:
        Store(path, create=create)
    assert "\n" not in str(caught.value)
    assert (path.read_bytes() if path.is_file() else None) == before


def test_a_place_where_no_file_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TesseraError, match="cannot make a store here"):
        Store(tmp_path / "file" / "s.sqlite")
    with pytest.raises(TesseraError, match="there is no store here"):
        Store(tmp_path / "absent.sqlite", create=False)
    with pytest.raises(TesseraError, match="cannot be used"):
        Store("/proc/s.sqlite")


def test_an_empty_file_becomes_a_store_when_wished(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    path.touch()
    with pytest.raises(TesseraError, match="is not a store"):
        Store(path, create=False)
    Store(path).close()
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA application_id").fetchone() == (APPLICATION,)
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    db.close()
