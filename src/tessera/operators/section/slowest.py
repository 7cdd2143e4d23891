"""The slowest cases of a run, and what each would take on the calibrated machine."""

from __future__ import annotations

from tessera.report.blocks import Column, Heading, Row, Table
from tessera.report.cells import NONE, figure, share
from tessera.report.measured import INTERVAL_HINT, measured
from tessera.report.naming import short_names
from tessera.report.runs import RunView
from tessera.results.record import Record

MOST = 20


def slowest_table(run: RunView) -> Table:
    """The cases that take longest."""
    names = short_names([run])
    timed = [record for record in run.records if record.status == "ok" and "time" in record.metrics]
    slowest = sorted(timed, key=lambda record: -record.metrics["time"].value)[:MOST]
    columns: list[Heading] = [
        "Case",
        Column("Time", "number"),
        Column("Interval", "number", hint=INTERVAL_HINT),
        Column("Roofline", "number", hint="share of what the calibrated machine could do"),
        Column("Lost", "number", hint="time beyond what the calibrated machine would need"),
    ]
    rows: list[Row] = [[names[record.case.key].cell, *_figures(record)] for record in slowest]
    return Table(columns, rows, f"The {len(rows)} slowest cases")


def _figures(record: Record) -> Row:
    found, seconds = measured(record), record.metrics["time"].value
    roofline, predicted = record.metrics.get("roofline"), record.predicted.get("time")
    return [
        figure(seconds, "s"),
        share(found.relative if found else None, "± "),
        share(roofline.value) if roofline else NONE,
        figure(seconds - predicted.value, "s") if predicted else NONE,
    ]
