"""The section of a feature that brings none of its own: its records in a table and its medians in a plot."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from tessera.report.blocks import Cell, Column, Row, Section, Table
from tessera.report.cells import NONE, figure, number, share, status
from tessera.report.measured import INTERVAL_HINT, measured
from tessera.report.medians import median_plots
from tessera.report.runs import RunView
from tessera.results.record import Case, Record


def generic_section(feature: str) -> Callable[[Sequence[RunView]], Section]:
    """A builder that shows whatever records a feature has."""

    def build(runs: Sequence[RunView]) -> Section:
        records = [record for run in runs for record in run.records]
        varying, fixed = split_params([record.case for record in records])
        intro = "In all cases: " + ", ".join(f"{k} = {v}" for k, v in fixed.items()) + "." if fixed else ""
        return Section(feature, intro, [*median_plots(runs, varying), record_table(runs, varying)])

    return build


def split_params(cases: Sequence[Case]) -> tuple[list[str], dict[str, str]]:
    """The names of the parameters that vary over the cases, and the others with their one value."""
    names = list(dict.fromkeys(name for case in cases for name in case.params))
    # As JSON, because 1 and "1" are two values.
    values = {
        name: {json.dumps(case.params[name], default=str) if name in case.params else "" for case in cases}
        for name in names
    }
    varying = [name for name in names if len(values[name]) > 1]
    return varying, {name: str(cases[0].params[name]) for name in names if name not in varying}


def record_table(runs: Sequence[RunView], varying: Sequence[str]) -> Table:
    """One row for each record: its parameters, its median and its metrics."""
    records = [record for run in runs for record in run.records]
    # The metric "time" is the median, which has its own column.
    metrics = list(dict.fromkeys(name for record in records for name in record.metrics if name != "time"))
    several = len(runs) > 1
    columns = [
        Column("Case", quick=True),
        *([Column("Run", quick=True)] if several else []),
        *(Column(name) for name in varying),
        Column("Status", quick=True),
        Column("Median", "number"),
        Column("Interval", "number", hint=INTERVAL_HINT),
        Column("Samples", "number"),
        *(Column(name.replace("_", " "), "number") for name in metrics),
    ]
    rows: list[Row] = [
        [
            record.case.name,
            *([run.name] if several else []),
            *(str(record.case.params.get(name, "")) for name in varying),
            status(record),
            *_figures(record),
            *(_metric(record, name) for name in metrics),
        ]
        for run in runs
        for record in run.records
    ]
    return Table(columns, rows, "Every record")


def _figures(record: Record) -> list[Cell]:
    found = measured(record)
    if found is None:
        return [NONE, NONE, NONE]
    return [figure(found.median, record.unit), share(found.relative, "± "), number(found.samples)]


def _metric(record: Record, name: str) -> Cell:
    metric = record.metrics.get(name)
    return figure(metric.value, metric.unit) if metric else NONE
