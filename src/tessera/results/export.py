"""Runs as files: JSON that can be read back, record for record, and Parquet for data frames."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tessera.errors import MissingExtra, TesseraError
from tessera.results import strict_json
from tessera.results.flat import COLUMNS, flat
from tessera.results.record import SCHEMA, Record
from tessera.results.run import Run
from tessera.results.store import Store

_FORMAT = "tessera records"


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
    """A run and its records as strict JSON. Each environment is written once, and records point to it."""
    environments: dict[str, Mapping[str, Any]] = {}
    rows = []
    for record in records:
        row = record.to_json()
        digest = hashlib.sha256(strict_json.dumps(row["environment"], sort_keys=True).encode()).hexdigest()[:16]
        environments[digest] = row["environment"]
        rows.append(row | {"environment": digest})
    document = {
        "format": _FORMAT,
        "schema": SCHEMA,
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
        document = strict_json.loads(Path(path).read_bytes())
    except OSError as error:
        raise TesseraError(f"cannot read the file: {error.strerror}", got=str(path)) from None
    except ValueError as error:  # not UTF-8, or not JSON
        raise TesseraError(f"not a JSON file: {error}", got=str(path)) from None
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise TesseraError("not an exported run", got=str(path), do="make one with `tessera export RUN -o FILE`")
    try:
        return _exported(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TesseraError(f"a damaged export ({error!r})", got=str(path), do="export the run again") from None


def _exported(document: dict[str, Any]) -> ExportedRun:
    if int(document["schema"]) > SCHEMA:
        raise TesseraError(
            "an export of a newer schema",
            got=document["schema"],
            allowed=f"up to {SCHEMA}",
            do="upgrade tessera",
        )
    environments = document["environments"]
    records = tuple(
        Record.from_json(row | {"environment": environments[row["environment"]]}) for row in document["records"]
    )
    run = document["run"]
    return ExportedRun(
        **{name: str(run[name]) for name in ("name", "command", "suite", "started", "finished")},
        records=records,
    )


def import_json(store: Store, path: str | Path, name: str | None = None) -> Run:
    """Put an exported run into a store, under its own name or another: all of it or nothing."""
    exported = read_json(path)
    with store.transaction():
        run = store.start_run(
            name or exported.name, command=exported.command, suite=exported.suite, started=exported.started
        )
        store.add_all(run, exported.records)
        return store.finish_run(run, finished=exported.finished) if exported.finished else run


def write_parquet(path: str | Path, records: Iterable[Record]) -> None:
    """The flat rows with typed columns, and the values of each launch in a column of lists."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("pyarrow", "parquet") from None
    types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64()}
    schema = pyarrow.schema(
        [(name, types[kind]) for name, kind in COLUMNS.items()]
        + [("values", pyarrow.list_(pyarrow.list_(pyarrow.float64())))]
    )
    rows = [flat(record) | {"values": [launch.values for launch in record.launches]} for record in records]
    try:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), str(path))
    except OSError as error:
        raise TesseraError(f"cannot write the file: {error.strerror or error}", got=str(path)) from None
