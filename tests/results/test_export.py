"""Tests of export and import of runs: strict JSON, exact round trips, flat rows, and Parquet."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.errors import TesseraError
from tessera.results.export import EXPORT_COLUMNS, flatten_record, import_json, read_json, to_json_text, write_parquet
from tessera.results.record import Case, Metric, Record
from tessera.results.store import Run, Store
from tests.results.synthetic import make_measured_record, records, to_exact_form

RUN = Run(
    id=1,
    name="nightly",
    command="tessera suite quick",
    suite="quick",
    started="2026-01-02",
    finished="2026-01-03",
)


@settings(deadline=None, max_examples=40)
@given(st.lists(records(), max_size=3))
def test_an_export_is_strict_json_and_round_trips_exactly(several: list[Record]) -> None:
    text = to_json_text(RUN, several)
    json.loads(text, parse_constant=pytest.fail)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.json"
        path.write_text(text)
        exported = read_json(path)
    assert to_exact_form(exported.records) == to_exact_form(several)
    assert (exported.name, exported.finished) == ("nightly", "2026-01-03")


def test_an_import_is_the_run_that_was_exported(tmp_path: Path) -> None:
    several = [make_measured_record(f"op{i}", 1.0, np.random.default_rng()) for i in range(3)]
    (tmp_path / "run.json").write_text(to_json_text(RUN, several))
    with Store(tmp_path / "s.sqlite") as store:
        run = import_json(store, tmp_path / "run.json")
        assert (run.name, run.command, run.suite, run.started, run.finished) == (
            *(RUN.name, RUN.command, RUN.suite),
            *(RUN.started, RUN.finished),
        )
        assert list(store.read_records(run)) == several
        with pytest.raises(TesseraError, match="a finished run of this name exists"):
            import_json(store, tmp_path / "run.json")
        assert import_json(store, tmp_path / "run.json", "again").name == "again"


def test_an_unfinished_run_stays_unfinished(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(to_json_text(Run(id=1, name="half"), []))
    with Store(tmp_path / "s.sqlite") as store:
        assert import_json(store, tmp_path / "run.json").finished == ""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe\x00", "the file is not JSON"),
        (b"{", "the file is not JSON"),
        (b"[NaN]", "the file is not JSON"),
        (b"[]", "not an exported run"),
        (b'{"format": "songs"}', "not an exported run"),
        (b'{"format": "tessera records"}', "damaged"),
        (b'{"format": "tessera records", "schema": 99}', "newer schema"),
        (
            b'{"format": "tessera records", "schema": 1, "run": [], "environments": {}, "records": [3]}',
            "damaged",
        ),
    ],
)
def test_files_that_are_not_exports(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(TesseraError, match=message) as caught:
        read_json(tmp_path / "x.json")
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TesseraError, match="cannot read the file: No such file"):
        read_json(tmp_path / "x.json")


@settings(deadline=None)
@given(records())
def test_a_flat_row_has_every_column_and_its_type(record: Record) -> None:
    row = flatten_record(record)
    assert list(row) == list(EXPORT_COLUMNS)
    for name, kind in EXPORT_COLUMNS.items():
        assert row[name] is None or isinstance(row[name], kind)


def test_flat_rows_hold_the_quantiles() -> None:
    record = Record(case=Case(feature="ops", name="add"), metrics={"rate": Metric(2.0, "images/s", "higher")})
    row = flatten_record(record)
    assert (row["samples"], row["median"]) == (0, None)
    assert row["metrics"] == '{"rate":{"value":2.0,"unit":"images/s"}}'


def test_parquet_has_the_rows_and_all_values(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    several = [make_measured_record(f"op{i}", 1.0, np.random.default_rng()) for i in range(3)]
    several.append(Record(case=Case(feature="ops", name="none"), status="failed", reason="b\udcff"))
    write_parquet(tmp_path / "run.parquet", several)
    rows = parquet.read_table(tmp_path / "run.parquet").to_pylist()
    assert [row["key"] for row in rows] == [record.case.key for record in several]
    assert [row["median"] for row in rows[:3]] == [pytest.approx(flatten_record(r)["median"]) for r in several[:3]]
    assert [tuple(map(tuple, row["values"])) for row in rows] == [
        tuple(launch.values for launch in record.launches) for record in several
    ]
    with pytest.raises(TesseraError, match="cannot write the file"):
        write_parquet(tmp_path, several)
