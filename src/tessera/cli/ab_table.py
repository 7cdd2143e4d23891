"""The table of a comparison between two interpreters: both times, their ratio with its interval, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from tessera.report.figures import format_percent, format_seconds
from tessera.report.tables import Column, Form, render
from tessera.results.record import Record

FIGURES = [
    Column("A", "right"),
    Column("B", "right"),
    Column("B / A", "right"),
    Column("interval", "right"),
    Column("verdict"),
    Column("could have seen", "right"),
]


def write_verdicts(records: Sequence[Record], form: Form, stream: TextIO, *, title: str) -> None:
    """One line for every operator; in the terminal, why some could not be compared below it."""
    told = _told(records)
    columns = [Column("operator"), *map(Column, told), *FIGURES]
    render(columns, [_row(record, told) for record in records], form, stream, title=title)
    if form == "terminal":
        stream.writelines(f"{r.status}: {r.case.key}: {r.reason}\n" for r in records if r.status != "ok")


def _told(records: Sequence[Record]) -> list[str]:
    """The parameters that tell the lines of a table apart: three always, others where they differ."""
    differing = {name: {record.case.params.get(name) for record in records} for name in ("backend", "fusion")}
    return ["size", "pass", "dtype", *(name for name, values in differing.items() if len(values) > 1)]


def _row(record: Record, told: Sequence[str]) -> list[str]:
    value = {name: metric.value for name, metric in record.metrics.items()}
    case = [record.case.name, *(str(record.case.params.get(name, "")) for name in told)]
    if record.status != "ok":
        return [*case, "", "", "", "", record.status.replace("_", " "), ""]
    return [
        *case,
        format_seconds(value["time_a"]),
        format_seconds(value["time_b"]),
        f"{value['ratio']:.4f}",
        f"{value['low']:.4f} to {value['high']:.4f}",
        record.notes[0],
        format_percent(value["smallest"]),
    ]
