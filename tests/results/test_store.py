"""Tests of the result store: round trips, resuming, concurrent use, full disks, and files that are not stores."""

import sqlite3
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.errors import TesseraError
from tessera.results.observation import make_observation
from tessera.results.record import Case, Record
from tessera.results.schema import APPLICATION_ID, STORE_SCHEMA_VERSION
from tessera.results.store import Store, get_default_store_path
from tests.results.synthetic import make_measured_record, records, to_exact_form


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path):
    database = request.param == "postgresql"
    location = request.getfixturevalue("postgres").create_database() if database else tmp_path / "s.sqlite"
    with Store(location) as opened:
        opened.location = location  # type: ignore[attr-defined]
        yield opened


@pytest.fixture
def sqlite_store(tmp_path: Path):
    with Store(tmp_path / "s.sqlite") as opened:
        yield opened


def make_small_record(name: str = "add", feature: str = "ops", **fields: object) -> Record:
    return Record(case=Case(feature=feature, name=name), **fields)  # type: ignore[arg-type]


@settings(deadline=None, max_examples=40)
@given(st.lists(records(), max_size=4))
def test_records_come_back_exactly(several: list[Record]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.sqlite"
        with Store(path) as store:
            store.add_all(store.start_run("r"), several)
        latest = {record.case.key: record for record in several}
        with Store(path, create=False) as store:
            records_read = list(store.read_records(store.get_run("r")))
            observed = list(store.read_observations(store.get_run("r")))
    assert to_exact_form(records_read) == to_exact_form(list(latest.values()))
    assert to_exact_form([o.figures for o in observed]) == to_exact_form(
        [make_observation(r).figures for r in records_read]
    )
    assert [(o.key, o.status, o.reason) for o in observed] == [(r.case.key, r.status, r.reason) for r in records_read]


def test_undecodable_text_round_trips(store: Store) -> None:
    record = make_small_record(name=b"\xff.so".decode("utf-8", "surrogateescape"), notes=("a\0b",))
    store.add(store.start_run("r"), record)
    assert list(store.read_records(store.get_run("r"))) == [record]


def test_records_keep_the_order_of_their_cases_and_can_be_filtered(store: Store) -> None:
    run = store.start_run("r")
    for feature, name in (("ops", "conv2d"), ("ops", "add"), ("halo", "conv")):
        store.add(run, make_small_record(name, feature))
    assert [r.case.name for r in store.read_records(run)] == ["conv2d", "add", "conv"]
    assert [r.case.name for r in store.read_records(run, feature="ops")] == ["conv2d", "add"]
    assert [r.case.name for r in store.read_records(run, name_glob="conv*")] == ["conv2d", "conv"]
    assert [o.key for o in store.read_observations(run, "ops", "a*")] == ["ops/add"]


def test_adding_again_replaces_in_place(store: Store) -> None:
    run = store.start_run("r")
    store.add(run, make_small_record("a", status="failed", reason="died", environment={"host": "x"}))
    store.add(run, make_small_record("b"))
    store.add(run, make_small_record("a", environment={"host": "y"}))
    assert list(store.read_records(run)) == [make_small_record("a", environment={"host": "y"}), make_small_record("b")]


def test_a_reader_may_write_while_it_reads(store: Store) -> None:
    run, second = store.start_run("r"), store.start_run("s")
    store.add_all(run, [make_small_record("a"), make_small_record("b")])
    for record in store.read_records(run):
        store.add(second, record)
    assert store.count_statuses(second) == {"ok": 2}


def test_environments_are_stored_once(sqlite_store: Store) -> None:
    store = sqlite_store
    run = store.start_run("r")
    for number in range(20):
        store.add(run, make_small_record(f"op{number}", environment={"b": 1, "a": number % 2}))
        store.add(run, make_small_record(f"op{number}", feature="halo", environment={"a": number % 2, "b": 1}))
    with sqlite3.connect(store.path) as db:
        assert db.execute("SELECT count(*) FROM environments").fetchone() == (2,)
    db.close()


def test_resume_continues_the_unfinished_run(store: Store) -> None:
    run = store.start_run("r", suite="quick")
    for status in ("ok", "failed", "refused", "timed_out"):
        store.add(run, make_small_record(status, status=status, reason="because"))
    again = store.start_run("r", resume=True)
    assert again == run == store.start_run(suite="quick", resume=True)
    assert store.count_statuses(run) == {"failed": 1, "ok": 1, "refused": 1, "timed_out": 1}


def test_runs_that_cannot_be_resumed_are_refused(store: Store) -> None:
    run = store.start_run("nightly", suite="quick")
    with pytest.raises(TesseraError, match=r"an unfinished run of this name exists.*--resume"):
        store.start_run("nightly")
    store.finish_run(run)
    for attempt in ({"name": "nightly"}, {"suite": "quick"}, {"name": "nightli"}):
        with pytest.raises(TesseraError):
            store.start_run(**attempt, resume=True)
    with pytest.raises(TesseraError, match="a finished run of this name exists"):
        store.start_run("nightly")


def test_runs_are_named_for_the_day_and_found_from_the_end(store: Store) -> None:
    names = [store.start_run().name for _ in range(3)]
    day = names[0].removesuffix("-1")
    assert names == [f"{day}-1", f"{day}-2", f"{day}-3"]
    assert [store.get_run(name).name for name in ("latest", "latest~1", "latest~2")] == names[::-1]
    with pytest.raises(TesseraError, match=f"did you mean .*{day}-3"):
        store.get_run(f"{day}-4")
    with pytest.raises(TesseraError, match="no such run"):
        store.get_run("latest~3")


@pytest.mark.parametrize("name", ["", " ", "a/b", "-x", "latest", "latest~1", "x.json", "x ", "x" * 101, "a\nb"])
def test_reserved_run_names_are_refused(store: Store, name: str) -> None:
    with pytest.raises(TesseraError, match="invalid run name"):
        store.start_run(name)


def test_deleting_a_run_leaves_the_others(store: Store) -> None:
    first, second = store.start_run("one"), store.start_run("two")
    store.add(first, make_small_record(environment={"host": "x"}))
    store.add(second, make_small_record(environment={"host": "y"}))
    store.delete_run(first)
    assert [run.name for run in store.list_runs()] == ["two"]
    assert next(store.read_records(second)).environment == {"host": "y"}
    store.add(second, make_small_record("new", environment={"host": "z"}))
    assert [r.environment["host"] for r in store.read_records(second)] == ["y", "z"]
    with pytest.raises(TesseraError, match="another process deleted the run"):
        store.add(first, make_small_record())


def test_adding_several_records_is_atomic(store: Store) -> None:
    run = store.start_run("r")
    with pytest.raises(TypeError):
        store.add_all(run, [make_small_record("a"), make_small_record("b", conditions={"not plain": object()})])
    assert list(store.read_records(run)) == []


def test_a_full_disk_is_a_one_line_error_and_loses_no_record(sqlite_store: Store) -> None:
    store = sqlite_store
    run = store.start_run("r")
    record = make_measured_record("a", 1e-3, np.random.default_rng())
    store.add(run, record)
    pages = store._db.query("PRAGMA page_count")[0][0]
    store._db.query(f"PRAGMA max_page_count = {pages + 10}")  # beyond it, SQLite reports a full disk
    added = [record]

    def fill() -> None:
        for number in range(1000):
            store.add(run, following := replace(record, case=Case(feature="ops", name=f"b{number}")))
            added.append(following)

    with pytest.raises(TesseraError, match="full: free space") as caught:
        fill()
    assert "\n" not in str(caught.value)
    assert list(store.read_records(run)) == added


def test_two_commands_may_use_one_store(store: Store) -> None:
    run = store.start_run("r")
    with Store(store.location) as second_store:
        second_run = second_store.start_run("s")
        for number in range(5):
            store.add(run, make_small_record(f"a{number}"))
            second_store.add(second_run, make_small_record(f"b{number}"))
    assert store.count_statuses(run) == store.count_statuses(store.get_run("s")) == {"ok": 5}


def test_a_store_in_memory_leaves_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ranks other than 0 use an in-memory store, so that they run the same code as rank 0, which writes the file."""
    monkeypatch.chdir(tmp_path)
    with Store(":memory:") as store:
        store.add(run := store.start_run("r"), make_small_record())
        assert list(store.read_records(run)) == [make_small_record()]
    assert list(tmp_path.iterdir()) == []


def test_the_default_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TESSERA_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    with Store() as store:
        assert store.path == get_default_store_path() == Path(".tessera/results.sqlite")
    assert (tmp_path / ".tessera" / "results.sqlite").exists()
    monkeypatch.setenv("TESSERA_STORE", str(tmp_path / "other.sqlite"))
    assert get_default_store_path() == tmp_path / "other.sqlite"


def write_foreign_file(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE songs (title)")
    db.close()


def write_newer_store(path: Path) -> None:
    Store(path).close()
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {STORE_SCHEMA_VERSION + 1}")
    db.close()


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.write_text("not a database, only words " * 100), "is not a Tessera store"),
        (lambda path: path.write_bytes(bytes(4096)), "is not a Tessera store"),
        (write_foreign_file, "is not a Tessera store"),
        (write_newer_store, "newer schema.*upgrade"),
        (lambda path: path.mkdir(), "directory"),
    ],
)
def test_files_that_are_not_stores_are_unchanged(tmp_path: Path, make, message: str, create: bool) -> None:
    path = tmp_path / "x.sqlite"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(TesseraError, match=message) as caught:
        Store(path, create=create)
    assert "\n" not in str(caught.value)
    assert (path.read_bytes() if path.is_file() else None) == before


def test_a_path_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TesseraError, match="cannot create the results file"):
        Store(tmp_path / "file" / "s.sqlite")
    with pytest.raises(TesseraError, match="the store does not exist"):
        Store(tmp_path / "absent.sqlite", create=False)
    with pytest.raises(TesseraError, match="cannot be used"):
        Store("/proc/s.sqlite")


def test_an_empty_file_becomes_a_store_on_request(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    path.touch()
    with pytest.raises(TesseraError, match="is not a Tessera store"):
        Store(path, create=False)
    Store(path).close()
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    db.close()
