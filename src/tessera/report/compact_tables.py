"""Compact tables of a run for the terminal: short names, one figure per case, noisy figures marked in place.

Cases that have a size and a pass are one row per operator with a column for each size and pass; all other cases are one
row each, with the metrics of `COMPACT_METRICS` that the feature has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from tessera.report.blocks import Cell, Column, Table
from tessera.report.cells import EMPTY_CELL, make_interval_cell, make_metric_cell
from tessera.report.figures import format_seconds, format_value
from tessera.report.measured import MAX_RELATIVE_INTERVAL, summarize_record
from tessera.report.naming import describe_shared_params, name_cases
from tessera.report.tables import write_table
from tessera.results.record import Case, Record

PIVOT_PARAMS = ("size", "pass")
# Metrics beside the main figure, with their headings.
COMPACT_METRICS = {
    "copy": "copy",
    "uncut": "unsplit",
    "hidden": "hidden",
    "efficiency": "efficiency",
    "latency_p50": "latency p50",
    "gain": "gain",
}
NOISE_MARK = "~"


def write_compact_tables(records: Sequence[Record], stream: TextIO) -> None:
    """Write one compact table per feature, and a line on the figures that are marked as noisy."""
    for feature in dict.fromkeys(record.case.feature for record in records):
        own = [record for record in records if record.case.feature == feature]
        write_table(build_compact_table(own), "terminal", stream)
    measured = [summary for record in records if record.status == "ok" and (summary := summarize_record(record))]
    noisy = sum(bool(summary.noise) for summary in measured)
    if noisy:
        limit = f"{MAX_RELATIVE_INTERVAL:.0%}"
        stream.write(
            f"{NOISE_MARK} noisy: {noisy} of {len(measured)} figures vary by more than ± {limit} or were interrupted\n"
        )


def build_compact_table(records: Sequence[Record]) -> Table:
    """Build the compact table of the records of one feature."""
    pivoted = all(set(PIVOT_PARAMS) <= record.case.params.keys() for record in records)
    return _build_pivot(records) if pivoted else _build_rows(records)


def _build_pivot(records: Sequence[Record]) -> Table:
    """Build a table with a row per operator and a column for each size and pass."""
    names = name_cases([record.case.without(*PIVOT_PARAMS) for record in records])
    columns = list(dict.fromkeys(_get_pivot(record.case) for record in records))
    rows: dict[str, dict[tuple[str, ...], Cell]] = {}
    for record in records:
        rows.setdefault(record.case.without(*PIVOT_PARAMS).key, {})[_get_pivot(record.case)] = _make_figure(record)
    return Table(
        [Column(records[0].case.feature), *(Column("\n".join(column), "number") for column in columns)],
        [[names[key].words, *(cells.get(column, EMPTY_CELL) for column in columns)] for key, cells in rows.items()],
        _make_title(records, *PIVOT_PARAMS),
    )


def _get_pivot(case: Case) -> tuple[str, ...]:
    return tuple(str(case.params[name]) for name in PIVOT_PARAMS)


def _build_rows(records: Sequence[Record]) -> Table:
    """Build a table with a row per case."""
    names = name_cases([record.case for record in records])
    feature = records[0].case.feature
    metrics = {name: head for name, head in COMPACT_METRICS.items() if any(name in r.metrics for r in records)}
    predicted = any("chip_time" in record.predicted for record in records)
    timed = all(record.unit == "s" for record in records)
    columns = [
        Column(feature),
        Column("time here" if predicted else "time" if timed else "figure", "number"),
        Column("±", "number"),
        *([Column("predicted on the chip", "number")] if predicted else []),
        *(Column(heading, "number") for heading in metrics.values()),
    ]
    rows = [
        [
            names[record.case.key].words,
            _make_figure(record),
            make_interval_cell(record),
            *([_make_chip_time(record)] if predicted else []),
            *(make_metric_cell(record, name) for name in metrics),
        ]
        for record in records
    ]
    return Table(columns, rows, _make_title(records))


def _make_title(records: Sequence[Record], *omitted: str) -> str:
    shared = describe_shared_params([record.case.without(*omitted) for record in records])
    return f"{records[0].case.feature}: {shared}" if shared else records[0].case.feature


def _make_figure(record: Record) -> Cell:
    """Return the median of a record, marked if it is noisy; the verdict or the status of a record without samples."""
    summary = summarize_record(record)
    if record.status != "ok" or summary is None:
        return Cell((record.verdict or record.status).replace("_", " "))
    mark = NOISE_MARK if summary.noise else ""
    return Cell(mark + format_value(summary.median, record.unit), summary.median)


def _make_chip_time(record: Record) -> Cell:
    predicted = record.predicted.get("chip_time")
    return Cell(format_seconds(predicted.value), predicted.value) if predicted else EMPTY_CELL
