"""Tests of damaged and hostile stores: a damaged record is named and skipped, and never part of a result."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from tessera.cli.main import main
from tessera.errors import TesseraError
from tessera.results import sqlite_database, strict_json
from tessera.results.copying import copy_runs
from tessera.results.maintenance import check_store
from tessera.results.record import Record
from tessera.results.record_rows import to_row
from tessera.results.store import DamagedRecordsWarning, Store
from tests.results.synthetic import make_measured_record

NAMES = [f"op{number}" for number in range(12)]
OLD_STORE = Path(__file__).parent / "data" / "store-v1.sqlite"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a store with two runs of twelve records."""
    path, rng = tmp_path / "s.sqlite", np.random.default_rng(7)
    with Store(path) as store:
        for run in ("before", "after"):
            started = store.start_run(run, command="tessera ops", suite="ops")
            store.add_all(started, [make_measured_record(name, 1.0, rng) for name in NAMES])
            store.finish_run(started)
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    return path


def read_all(path: Path) -> dict[tuple[str, str], Record]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamagedRecordsWarning)
        with Store(path, create=False) as store:
            return {(run.name, r.case.key): r for run in store.list_runs() for r in store.read_records(run)}


def change(path: Path, statement: str, *parameters: object) -> None:
    with sqlite3.connect(path) as db:
        db.execute(statement, parameters)
    db.close()


@pytest.mark.parametrize(
    "column",
    ["key", "feature", "name", "status", "body", "sample_values", "sample_others", "checksum", "environment"],
)
def test_a_changed_column_is_noticed_and_the_others_are_read(path: Path, column: str) -> None:
    if column == "environment":
        change(path, "INSERT INTO environments (digest, content) VALUES ('x', '{}')")
        change(path, "UPDATE records SET environment = (SELECT max(id) FROM environments) WHERE id = 3")
    else:
        new = b"\0" * 8 if column.startswith("sample") or column == "checksum" else "changed"
        change(path, f"UPDATE records SET {column} = ? WHERE id = 3", new)
    store = Store(path)
    assert len(list(store.read_records(store.get_run("before")))) == 11
    assert len(store.damaged) == 1
    assert len(list(store.read_records(store.get_run("after")))) == 12
    with pytest.warns(DamagedRecordsWarning, match="1 damaged records of .* were skipped"):
        store.close()


@pytest.mark.parametrize("column", ["name", "command", "suite", "started", "finished"])
def test_a_changed_description_of_a_run_is_noticed(path: Path, column: str) -> None:
    change(path, f"UPDATE runs SET {column} = 'other' WHERE id = 1")
    with pytest.warns(DamagedRecordsWarning, match="its description"), Store(path, create=False) as store:
        store.list_runs()


@pytest.mark.timeout(100)
def test_no_flipped_byte_changes_a_record_or_ends_in_a_traceback(path: Path, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    rng, content, expected = random.Random(seed), path.read_bytes(), read_all(path)
    damaged_path = tmp_path / "d.sqlite"
    for _ in range(150):
        changed = bytearray(content)
        place = rng.randrange(len(changed))
        changed[place] ^= 1 << rng.randrange(8)
        damaged_path.write_bytes(changed)
        for suffix in ("-wal", "-shm"):
            damaged_path.with_name(f"d.sqlite{suffix}").unlink(missing_ok=True)
        try:
            records = read_all(damaged_path)
        except TesseraError:
            continue
        assert all(expected[key] == record for key, record in records.items()), place


def test_check_names_damaged_records_and_repair_saves_the_others(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--store", str(path)]
    assert main(["store", "check", *words]) == 0
    assert "2 runs, 24 sound records, 0 damaged" in capsys.readouterr().out
    change(path, "UPDATE records SET body = replace(body, '\"s\"', '\"x\"') WHERE id = 5")
    assert main(["store", "check", *words]) == 1
    out, err = capsys.readouterr()
    assert "damaged: ops/op4 of run before: the checksum does not match" in out
    assert "tessera store repair NEW" in err
    new = tmp_path / "new.sqlite"
    assert main(["store", "repair", str(new), *words]) == 0
    assert "23 records" in capsys.readouterr().err
    assert main(["store", "check", "--store", str(new)]) == 0
    assert read_all(new) == read_all(path)
    assert main(["compare", "before", "after", *words]) in (0, 1, 3)
    assert "ops/op4" not in (shown := capsys.readouterr()).out
    assert "warning: 1 damaged records" in shown.err


def test_deleting_and_vacuuming(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--store", str(path)]
    assert main(["store", "delete", "before", *words]) == 0
    assert {run for run, _ in read_all(path)} == {"after"}
    size = path.stat().st_size
    assert main(["store", "vacuum", *words]) == 0
    assert path.stat().st_size < size
    for wrong in (["delete"], ["check", "x"], ["burn"], ["delete", "before"], ["repair", str(path)]):
        assert main(["store", *wrong, *words]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_copying_twice_copies_once_and_keeps_runs_of_equal_names_apart(path: Path, tmp_path: Path) -> None:
    with Store(path) as source, Store(tmp_path / "t.sqlite") as target:
        other = target.start_run("before", command="another")
        target.finish_run(other)
        assert copy_runs(source, target).records == 24
        again = copy_runs(source, target)
        assert (again.runs, again.records, again.present) == (0, 0, 24)
        names = [run.name for run in target.list_runs()]
        assert names[0] == "before"
        assert names[1].startswith("before@")
        assert names[2] == "after"
        assert copy_runs(target, source).records == 0


INVALID_FIELDS = {
    "metrics": {"time": {"value": "fast", "unit": "s", "direction": "lower"}},
    "seconds": "long",
    "notes": [1],
    "case": {"feature": "ops", "name": 5, "params": {}},
    "details": {"count": 2**70},
    "unit": None,
}


@pytest.mark.parametrize("name", INVALID_FIELDS)
def test_an_invalid_record_with_a_valid_checksum_is_skipped(path: Path, name: str) -> None:
    with Store(path) as store:
        run = store.get_run("before")
        row = to_row(next(store.read_records(run)), run.name)
    body = strict_json.loads(row.body) | {name: INVALID_FIELDS[name]}
    row = type(row)(**{field: getattr(row, field) for field in row.__slots__} | {"body": strict_json.dumps(body)})
    change(path, "UPDATE records SET body = ?, checksum = ? WHERE id = 1", row.body, row.compute_checksum())
    store = Store(path)
    assert len(list(store.read_records(run))) == 11
    assert len(list(store.read_observations(run))) == 11
    with pytest.warns(DamagedRecordsWarning, match=f"invalid value of {name}"):
        store.close()


def test_a_store_with_a_view_in_place_of_a_table_is_refused(path: Path) -> None:
    change(path, "ALTER TABLE records RENAME TO kept")
    change(
        path,
        "CREATE VIEW records AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x AS id FROM c",
    )
    with pytest.raises(TesseraError, match="unexpected object in the schema"):
        Store(path, create=False)


def test_a_trigger_is_refused(path: Path) -> None:
    change(path, "CREATE TRIGGER t AFTER INSERT ON records BEGIN DELETE FROM records; END")
    with pytest.raises(TesseraError, match="unexpected object in the schema"):
        Store(path)


def count_as_other_user(path: Path) -> int:
    """Return the number of records that a process of another user reads; 255 after an error."""
    process = os.fork()
    if process == 0:
        code = 255
        try:
            os.setuid(65534)
            code = len(read_all(path))
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start a process of another user")
@pytest.mark.parametrize("old", [True, False])
def test_a_store_that_cannot_be_written_is_read(path: Path, old: bool) -> None:
    if old:
        shutil.copy(OLD_STORE, path)
    for folder in (path.parent, path.parent.parent, path.parent.parent.parent):
        folder.chmod(0o755)
    count = count_as_other_user(path)
    assert count == len(read_all(path)) > 20


CREATOR = """
import sys, time
from tessera.results.store import Store
time.sleep(max(0, float(sys.argv[2]) - time.time()))
with Store(sys.argv[1]) as store:
    run = store.start_run(f"r{sys.argv[3]}")
    store.finish_run(run)
"""


@pytest.mark.timeout(100)
def test_several_processes_create_one_store_at_the_same_moment(tmp_path: Path) -> None:
    import time

    for round_ in range(6):
        path, moment = tmp_path / f"{round_}.sqlite", time.time() + 0.7
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", CREATOR, str(path), str(moment), str(number)], stderr=subprocess.PIPE, text=True
            )
            for number in range(5)
        ]
        errors = [process.communicate(timeout=60)[1] for process in processes]
        assert errors == [""] * 5
        with Store(path, create=False) as store:
            assert len(store.list_runs()) == 5


def test_a_migrated_store_has_checksums_and_the_index_of_cases(tmp_path: Path) -> None:
    path = Path(shutil.copy(OLD_STORE, tmp_path / "old.sqlite"))
    with Store(path, create=False) as store:
        result = check_store(store)
        assert result.is_sound
        assert result.records > 30
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (2,)
        assert db.execute("SELECT count(*) FROM records WHERE length(checksum) != 12").fetchone() == (0,)
        (plan,) = db.execute(
            "EXPLAIN QUERY PLAN SELECT id FROM records WHERE feature = 'ops' AND name = 'add'"
        ).fetchall()
        assert "records_by_case" in plan[3]
    db.close()
    change(path, "UPDATE records SET body = body || ' ' WHERE id = (SELECT min(id) FROM records)")
    with pytest.warns(DamagedRecordsWarning), Store(path) as store:
        assert not check_store(store).is_sound


def rewrite_schema(path: Path, old: str, new: str) -> None:
    """Change the definition of the table of records without changing its rows."""
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE name = 'records'", (old, new))
        db.execute("PRAGMA writable_schema = RESET")
    db.close()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (") STRICT", ")"),
        ("checksum BLOB", "checksum INTEGER"),
        ("sample_values BLOB", "sample_values ANY"),
        ("body TEXT NOT NULL", "body TEXT"),
    ],
)
def test_a_table_with_other_columns_is_refused(path: Path, old: str, new: str) -> None:
    rewrite_schema(path, old, new)
    for create in (True, False):
        with pytest.raises(TesseraError, match=r"is not a Tessera store: .*records"):
            Store(path, create=create)


@pytest.mark.parametrize("column", ["checksum", "sample_values", "sample_others"])
@pytest.mark.parametrize("value", [10**15, "text"])
def test_a_value_of_the_wrong_type_is_damage(path: Path, column: str, value: object) -> None:
    rewrite_schema(path, ") STRICT", ")")
    change(path, f"UPDATE records SET {column} = ? WHERE id = 3", value)
    rewrite_schema(path, "UNIQUE (run, key)\n)", "UNIQUE (run, key)\n) STRICT")
    with pytest.warns(DamagedRecordsWarning, match="1 damaged"), Store(path, create=False) as store:
        assert len(list(store.read_records(store.get_run("before")))) == 11


def test_opening_a_store_is_bounded_in_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_database, "STATEMENT_SECONDS", -1.0)
    monkeypatch.setattr(sqlite_database, "_STEPS_BETWEEN_CHECKS", 1)
    with pytest.raises(TesseraError, match="interrupted"):
        Store(path, create=False)


def test_repair_renames_a_run_whose_name_is_damaged(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(path, "UPDATE runs SET name = '/' || name WHERE id = 1")
    new = tmp_path / "new.sqlite"
    assert main(["store", "repair", str(new), "--store", str(path)]) == 0
    err = capsys.readouterr().err
    assert "copied 2 runs with 12 records" in err
    assert "1 runs with a damaged name are named recovered-ID" in err
    with Store(new, create=False) as store:
        assert [run.name for run in store.list_runs()] == ["recovered-1", "after"]


def test_a_run_that_another_process_writes_in_the_target_is_not_copied(path: Path, tmp_path: Path) -> None:
    other = Path(shutil.copy(path, tmp_path / "t.sqlite"))
    change(other, "DELETE FROM records")
    change(other, "UPDATE runs SET writer = 'another-host/boot/space|5|6' WHERE name = 'before'")
    with Store(path) as source, Store(other) as target:
        count = copy_runs(source, target)
        assert (count.runs, count.records) == (1, 12)
        assert not list(target.read_records(target.get_run("before")))
