"""Records as a table of a terminal: one line per case, with what matters of any feature."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

from tessera.report.destination import destination
from tessera.report.figures import format_percent, format_value
from tessera.report.generic import split_params
from tessera.report.measured import measured
from tessera.report.tables import Column, Form, render
from tessera.results.export import to_json_text
from tessera.results.flat import COLUMNS, flat
from tessera.results.record import Record
from tessera.results.run import Run

# metrics worth a column when any record has them: heading and metric
FIGURES = (
    ("compute", "gflops"),
    ("memory", "bandwidth"),
    ("allocated", "peak_allocated"),
    ("roofline", "roofline"),
    ("unfused", "unfused"),
    ("gain", "gain"),
    ("by allocator", "allocator_share"),
    ("efficiency", "efficiency"),
    ("hidden", "hidden"),
)
SHARES = ("roofline", "allocator_share", "efficiency", "hidden")


def print_records(run: Run, records: Sequence[Record], form: Form, output: str | None, *, metric: str = "time") -> None:
    """Print the records of a run in the form asked for; JSON is the export format, which can be read back.

    A `metric` that the table does not show anyway gets a column.
    """
    with destination(output) as stream:
        if form in ("json", "csv"):
            write_records(run, records, form, stream)
        else:
            records_table(records, form, stream, metric=metric)


def write_records(run: Run, records: Sequence[Record], form: Form, stream: TextIO) -> None:
    """Records for a program: the export format as JSON, or plain numbers with one unit to a column as CSV."""
    if form == "json":
        stream.write(to_json_text(run, records))
    else:
        render([Column(name) for name in COLUMNS], [tuple(flat(r).values()) for r in records], form, stream)


def records_table(records: Sequence[Record], form: Form, stream: TextIO = sys.stdout, *, metric: str = "time") -> None:
    """A table for each feature: their parameters have little in common."""
    for number, feature in enumerate(dict.fromkeys(record.case.feature for record in records)):
        if number and form == "markdown":
            stream.write("\n")  # without it the next table would be part of this one
        _table([record for record in records if record.case.feature == feature], form, stream, metric)


def _table(records: Sequence[Record], form: Form, stream: TextIO, metric: str) -> None:
    varying, fixed = split_params([record.case for record in records])
    own = () if metric in ("time", *(name for _, name in FIGURES)) else ((metric, metric),)
    figures = [(head, name) for head, name in (*FIGURES, *own) if any(name in record.metrics for record in records)]
    columns = [
        Column("case"),
        *(Column(name) for name in varying),
        Column("time" if all(record.unit == "s" for record in records) else "figure", "right"),
        Column("±", "right"),
        Column("launches", "right"),
        *(Column(head, "right") for head, _ in figures),
        Column("status"),
    ]
    rows = [
        [
            f"{record.case.feature} {record.case.name}",
            *(_word(record.case.params.get(name, "")) for name in varying),
            *_time(record),
            *(_figure(record, name) for _, name in figures),
            record.status.replace("_", " "),
        ]
        for record in records
    ]
    title = ", ".join(f"{name} {value}" for name, value in fixed.items())
    render(columns, rows, form, stream, title)


def _time(record: Record) -> tuple[str, str, str]:
    found = measured(record)
    if found is None:
        return "", "", ""
    interval = format_percent(found.relative) if found.relative is not None else "?"
    return format_value(found.median, record.unit), interval, str(found.launches)


def _figure(record: Record, name: str) -> str:
    metric = record.metrics.get(name)
    if metric is None:
        return ""
    return format_percent(metric.value) if name in SHARES else format_value(metric.value, metric.unit)


def _word(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
