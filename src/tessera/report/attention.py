"""What deserves a second look: figures that are not sure, and cases that gave none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tessera.report.blocks import Block, Cell, Column, Row, Section, Table, Text
from tessera.report.cells import figure, share, status
from tessera.report.measured import INTERVAL_HINT, OFTEN, WIDE, Measured, measured
from tessera.report.naming import Names, short_names
from tessera.report.runs import RunView
from tessera.results.record import Record


def noisy(runs: Sequence[RunView]) -> Iterator[tuple[RunView, Record, Measured]]:
    """The records whose figure is to be taken with care."""
    for run in runs:
        for record in run.records:
            if record.status == "ok" and (found := measured(record)) and found.noise:
                yield run, record, found


def attention_section(runs: Sequence[RunView]) -> Section:
    """The noisy, the refused and the failed cases, each with its reason."""
    broken = [(run, record) for run in runs for record in run.records if record.status != "ok"]
    uncertain = list(noisy(runs))
    names = short_names(runs)
    blocks: list[Block] = []
    if broken:
        blocks.append(_broken_table(broken, names))
    if uncertain:
        blocks.append(_noisy_table(uncertain, names))
    if not blocks:
        blocks.append(Text("Every case gave a figure, and none of them is noisy.", "good"))
    return Section(
        "What deserves a second look",
        f"A figure is called noisy when its median is known no better than ± {WIDE:.0%}, or when more than "
        f"{OFTEN:.0%} of its samples were interrupted by other work on the core.",
        blocks,
    )


def _broken_table(broken: Sequence[tuple[RunView, Record]], names: Names) -> Table:
    columns = [*_WHERE, Column("Status", quick=True), Column("Reason", "prose")]
    rows: list[Row] = [[*_where(run, record, names), status(record), record.reason] for run, record in broken]
    return Table(columns, rows, "Cases without a figure")


def _noisy_table(uncertain: Sequence[tuple[RunView, Record, Measured]], names: Names) -> Table:
    columns = [
        *_WHERE,
        Column("Median", "number"),
        Column("Interval", "number", hint=INTERVAL_HINT),
        Column("Interrupted", "number", hint="samples during which the core did something else"),
        Column("Why to take care", "prose"),
    ]
    rows: list[Row] = [
        [
            *_where(run, record, names),
            figure(found.median, record.unit),
            share(found.relative, "± "),
            share(found.disturbed),
            "; ".join(found.noise),
        ]
        for run, record, found in uncertain
    ]
    return Table(columns, rows, "Noisy figures")


_WHERE = (Column("Case"), Column("Feature", quick=True), Column("Run", quick=True))


def _where(run: RunView, record: Record, names: Names) -> tuple[Cell, str, str]:
    return names[record.case.key].cell, record.case.feature, run.name
