"""Export and import of runs: JSON that can be imported again, flat rows for CSV and data frames, and Parquet."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tessera.errors import MissingExtra, TesseraError
from tessera.results import strict_json
from tessera.results.observation import Observation, make_observation
from tessera.results.record import RECORD_SCHEMA, Metric, Record
from tessera.results.record_rows import make_storable
from tessera.results.store import Run, Store
from tessera.validation import InvalidValue, check_fields, check_value, read_bounded

MAX_EXPORT_BYTES = 2 << 30
_FORMAT_NAME = "tessera records"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedRun:
    """A run read from a file."""

    name: str
    command: str
    suite: str
    started: str
    finished: str
    records: tuple[Record, ...]


def to_json_text(run: Run, records: Iterable[Record]) -> str:
    """Return a run and its records as strict JSON. Equal environments are written once and referenced by hash."""
    environments: dict[str, Mapping[str, Any]] = {}
    rows = []
    for record in records:
        row = record.to_json()
        digest = hashlib.sha256(strict_json.dumps(row["environment"], sort_keys=True).encode()).hexdigest()[:16]
        environments[digest] = row["environment"]
        rows.append(row | {"environment": digest})
    document = {
        "format": _FORMAT_NAME,
        "schema": RECORD_SCHEMA,
        "run": {
            "name": run.name,
            "command": run.command,
            "suite": run.suite,
            "started": run.started,
            "finished": run.finished,
        },
        "environments": environments,
        "records": rows,
    }
    return strict_json.dumps(document) + "\n"


def read_json(path: str | Path) -> ExportedRun:
    """Read an exported run."""
    try:
        document = strict_json.loads(read_bounded(path, MAX_EXPORT_BYTES))
    except OSError as error:
        raise TesseraError(f"cannot read the file: {error.strerror}", got=str(path)) from None
    except ValueError as error:  # not UTF-8, or not JSON
        raise TesseraError(f"the file is not JSON: {error}", got=str(path)) from None
    if not isinstance(document, dict) or document.get("format") != _FORMAT_NAME:
        raise TesseraError(
            "the file is not an exported run", got=str(path), do="create one with `tessera export RUN -o FILE.json`"
        )
    return _parse_export(document, str(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class _ExportDocument:
    """The types of an exported document; each record is checked on its own."""

    schema: int
    run: _RunDescription
    environments: Mapping[str, Mapping[str, Any]]
    records: tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunDescription:
    name: str
    command: str
    suite: str
    started: str
    finished: str


def _parse_export(document: dict[str, Any], path: str) -> ExportedRun:
    """Check every value of an exported document, and build its records."""
    schema = document.get("schema")
    if isinstance(schema, int) and schema > RECORD_SCHEMA:  # a newer schema may have other fields
        raise TesseraError(
            "the exported file has a newer schema",
            got=schema,
            allowed=f"up to {RECORD_SCHEMA}",
            do="upgrade tessera",
        )
    check_fields(_ExportDocument, document, f"{path} is damaged")
    run = document["run"]
    records = tuple(
        _parse_record(row, document["environments"], f"{path} is damaged: record {number}")
        for number, row in enumerate(document["records"])
    )
    return ExportedRun(**{field.name: run[field.name] for field in fields(_RunDescription)}, records=records)


def _parse_record(row: Any, environments: Mapping[str, Any], where: str) -> Record:
    check_value(Mapping[str, Any], row, where)
    digest = row.get("environment")
    if not isinstance(digest, str) or digest not in environments:
        raise InvalidValue(f"{where}: unknown environment", got=digest)
    try:
        return Record.from_json(row | {"environment": environments[digest]})
    except TesseraError as error:
        raise InvalidValue(f"{where}: {error}") from None


def import_json(store: Store, path: str | Path, name: str | None = None) -> Run:
    """Import an exported run into a store in one transaction; `name` replaces the name of the run."""
    exported = read_json(path)
    with store.transaction():
        run = store.start_run(
            name or exported.name, command=exported.command, suite=exported.suite, started=exported.started
        )
        store.add_all(run, exported.records)
        return store.finish_run(run, finished=exported.finished) if exported.finished else run


def write_parquet(path: str | Path, records: Iterable[Record]) -> None:
    """Write records to a Parquet file as flat rows with typed columns; the launches' values are a column of lists."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("pyarrow", "parquet") from None
    types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64()}
    schema = pyarrow.schema(
        [(name, types[kind]) for name, kind in EXPORT_COLUMNS.items()]
        + [("values", pyarrow.list_(pyarrow.list_(pyarrow.float64())))]
    )
    rows = [flatten_record(record) | {"values": [launch.values for launch in record.launches]} for record in records]
    try:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), str(path))
    except OSError as error:
        raise TesseraError(f"cannot write the file: {error.strerror or error}", got=str(path)) from None


# Append new columns at the end, so that files of different releases can be read by column position.
EXPORT_COLUMNS: dict[str, type] = {
    "key": str,
    "feature": str,
    "name": str,
    "params": str,
    "version": str,
    "status": str,
    "reason": str,
    "unit": str,
    "direction": str,
    "launches": int,
    "samples": int,
    "p25": float,
    "median": float,
    "p75": float,
    "p99": float,
    "metrics": str,
    "predicted": str,
    "fingerprint": str,
    "notes": str,
    "started": str,
    "seconds": float,
    "verdict": str,
    "chosen": str,
    "details": str,
}


def flatten_record(record: Record) -> dict[str, Any]:
    """Return one record as a flat row. Quantiles are over the values of all launches; None without values."""
    values = record.values
    p25, median, p75, p99 = _compute_sample_quantiles(values)
    row = {
        "key": record.case.key,
        "feature": record.case.feature,
        "name": record.case.name,
        "params": strict_json.dumps(dict(record.case.params), sort_keys=True),
        "version": record.version,
        "status": record.status,
        "reason": record.reason,
        "unit": record.unit,
        "direction": record.direction,
        "launches": len(record.launches),
        "samples": len(values),
        "p25": p25,
        "median": median,
        "p75": p75,
        "p99": p99,
        "metrics": _dump_metrics(record.metrics),
        "predicted": _dump_metrics(record.predicted),
        "fingerprint": record.fingerprint,
        "notes": "\n".join(record.notes),
        "started": record.started,
        "seconds": record.seconds,
        "verdict": record.verdict or "",
        "chosen": strict_json.dumps(dict(record.chosen), sort_keys=True),
        "details": strict_json.dumps(dict(record.details), sort_keys=True),
    }
    return {name: make_storable(cell) if isinstance(cell, str) else cell for name, cell in row.items()}


def _compute_sample_quantiles(values: tuple[float, ...]) -> list[float | None]:
    if not values:
        return [None] * 4
    import numpy as np

    from tessera.measure.statistics import summarize

    with np.errstate(invalid="ignore"):  # interpolation between two infinities gives NaN
        summary = summarize(values)
    return [summary.p25, summary.median, summary.p75, summary.p99]


def _dump_metrics(metrics: Mapping[str, Metric]) -> str:
    return strict_json.dumps({name: {"value": m.value, "unit": m.unit} for name, m in metrics.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSource:
    """A run loaded from a store or an exported file: its name, start time and observations."""

    name: str
    started: str
    observations: tuple[Observation, ...]


def is_file_name(text: str) -> bool:
    """Return whether a text names a file instead of a run: run names contain no slash and do not end in .json.

    >>> is_file_name("nightly"), is_file_name("nightly.json"), is_file_name("out/nightly")
    (False, True, True)
    """
    return text.endswith(".json") or "/" in text


def read_source(
    text: str, store: str | Path | None = None, *, feature: str | None = None, name_glob: str | None = None
) -> RunSource:
    """Read a run from a store or an exported file, restricted to one feature or to names that match a pattern."""
    if is_file_name(text):
        exported = read_json(text)
        kept = (
            record
            for record in exported.records
            if (feature is None or record.case.feature == feature)
            and (name_glob is None or fnmatchcase(record.case.name, name_glob))
        )
        return RunSource(name=text, started=exported.started, observations=tuple(make_observation(r) for r in kept))
    with Store(store, create=False) as opened:
        run = opened.get_run(text)
        observations = tuple(opened.read_observations(run, feature, name_glob))
    return RunSource(name=run.name, started=run.started, observations=observations)
