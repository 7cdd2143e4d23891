"""Report sections of features: a generic section built from records, and the frame of feature-specific sections."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from tessera.report.blocks import Block, Card, Cards, Cell, Column, Section, Table, Text
from tessera.report.cells import EMPTY_CELL, make_count_cell
from tessera.report.measured import summarize_record
from tessera.report.plots import plot_medians
from tessera.report.record_tables import (
    RecordColumn,
    RecordTable,
    build_table,
    make_metric_column,
    make_time_columns,
    split_params,
)
from tessera.report.runs import RunView
from tessera.results.metrics import get_spec
from tessera.results.record import Record


def make_generic_section(feature: str) -> Callable[[Sequence[RunView]], Section]:
    """Return a builder of a section for any feature: a plot of medians, and a table of its records."""

    def build(runs: Sequence[RunView]) -> Section:
        varying, fixed = split_params([record.case for run in runs for record in run.records])
        intro = "In all cases: " + ", ".join(f"{k} = {v}" for k, v in fixed.items()) + "." if fixed else ""
        return Section(feature, intro, [*plot_medians(runs, varying), build_record_table(runs)])

    return build


def build_record_table(runs: Sequence[RunView]) -> Table:
    """Build the table with one row for each record: its parameters, its median and all of its metrics."""
    records = [record for run in runs for record in run.records]
    run_names = {id(record): run.name for run in runs for record in run.records}
    run_column = RecordColumn(heading="run", cell=lambda r: Cell(run_names[id(r)]), kind="text", quick=True)
    # The metric "time" equals the median, which already has a column.
    names = dict.fromkeys(name for record in records for name in record.metrics if name != "time")
    feature = records[0].case.feature if records else ""
    columns = [
        *([run_column] if len(runs) > 1 else []),
        *make_time_columns("median"),
        RecordColumn(heading="samples", cell=_count_samples, always=True),
        *(make_metric_column(name, get_spec(name, feature).title) for name in names),
    ]
    table = build_table(records, RecordTable(columns=columns, name="case", name_always=True))
    headings = [Column(column) if isinstance(column, str) else column for column in table.columns]
    capitalised = [replace(column, title=column.title[:1].upper() + column.title[1:]) for column in headings]
    return Table(capitalised, table.rows, "Every record")


def _count_samples(record: Record) -> Cell:
    summary = summarize_record(record)
    return EMPTY_CELL if summary is None else make_count_cell(summary.samples)


def build_feature_section(
    title: str, intro: str, runs: Sequence[RunView], *, cards: Sequence[Card], parts: Iterable[Section | None]
) -> Section:
    """Build the section of a feature from the last of `runs`, the newest: cards, parts and a table of all records.

    A part without content is None. The comparison section shows the other runs.
    """
    newest = runs[-1]
    blocks: list[Block] = []
    if len(runs) > 1:
        blocks.append(Text(f"Of {len(runs)} runs, the newest is shown: `{newest.name}`."))
    if cards:
        blocks.append(Cards(cards))
    blocks += [part for part in parts if part]
    if newest.records:
        blocks.append(Section("All records", "", [build_record_table([newest])]))
    return Section(title, intro, blocks)
