"""The summary of the page: key values, runs, unreliable or missing results, and the environment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from tessera.report.blocks import Block, Card, Cards, Cell, Column, Heading, Row, Section, Table, Text, Tone
from tessera.report.cells import make_count_cell, make_share_cell, make_status_cell, make_value_cell
from tessera.report.environment import build_environment_section
from tessera.report.figures import format_seconds
from tessera.report.measured import (
    INTERVAL_HINT,
    MAX_DISTURBED_FRACTION,
    MAX_RELATIVE_INTERVAL,
    RecordSummary,
    summarize_record,
)
from tessera.report.naming import CaseNames, name_cases_of_runs
from tessera.report.runs import RunView, list_features
from tessera.results.record import Record


def build_summary_section(runs: Sequence[RunView], changes: Sequence[Card] = ()) -> Section:
    """Build the summary section; `changes` are cards of the comparison."""
    measured, *others = _build_cards(runs)
    blocks: list[Block] = [
        Cards([measured, *changes, *others]),
        _build_runs_table(runs),
        build_attention_section(runs),
        build_environment_section(runs),
    ]
    return Section("Summary", "", blocks)


def _build_cards(runs: Sequence[RunView]) -> list[Card]:
    ended = Counter(record.status for run in runs for record in run.records)
    feature_count = len(list_features(runs))
    return [
        Card("Measured", f"{ended['ok']:,}", f"of {ended.total():,} cases"),
        _make_count_card("Failed", ended["failed"], "reasons below", "bad"),
        _make_count_card("Timed out", ended["timed_out"], "reasons below", "bad"),
        _make_count_card("Refused", ended["refused"], "not supported", ""),
        _make_count_card("Noisy", sum(1 for _ in iter_noisy(runs)), "unreliable", "warn"),
        Card(
            "Time taken",
            format_seconds(sum(run.seconds for run in runs)),
            "1 feature" if feature_count == 1 else f"{feature_count} features",
        ),
    ]


def _make_count_card(label: str, count: int, remark: str, tone: Tone) -> Card:
    """Make the card of a count that should be zero, with `tone` if it is not zero."""
    return Card(label, f"{count:,}", remark, tone) if count else Card(label, "0", "", "muted")


def _format_minute(text: str) -> str:
    """Format a stored date to the minute, in its original time zone.

    >>> _format_minute("2026-03-01T12:00:59+01:00")
    '2026-03-01 12:00'
    """
    try:
        return f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M}"
    except ValueError:
        return text


def _build_runs_table(runs: Sequence[RunView]) -> Table:
    columns: list[Heading] = [
        "Run",
        "Started",
        Column("Cases", "number"),
        Column("Measured", "number"),
        Column("Time taken", "number"),
        "Features",
        Column("Command", "prose"),
    ]
    rows: list[Row] = [
        [
            run.name,
            _format_minute(run.created),
            make_count_cell(len(run.records)),
            make_count_cell(sum(record.status == "ok" for record in run.records)),
            Cell(format_seconds(run.seconds), run.seconds),
            ", ".join(list_features([run])),
            run.command,
        ]
        for run in runs
    ]
    return Table(columns, rows, "Runs")


def iter_noisy(runs: Sequence[RunView]) -> Iterator[tuple[RunView, Record, RecordSummary]]:
    """Yield the records with an unreliable median."""
    for run in runs:
        for record in run.records:
            if record.status == "ok" and (summary := summarize_record(record)) and summary.noise:
                yield run, record, summary


def build_attention_section(runs: Sequence[RunView]) -> Section:
    """Build the section of noisy, refused and failed cases, each with its reason."""
    broken = [(run, record) for run in runs for record in run.records if record.status != "ok"]
    uncertain = list(iter_noisy(runs))
    names = name_cases_of_runs(runs)
    blocks: list[Block] = []
    if broken:
        blocks.append(_build_failed_table(broken, names))
    if uncertain:
        blocks.append(_build_noisy_table(uncertain, names))
    if not blocks:
        blocks.append(Text("Every case has a result, and no result is noisy.", "good"))
    return Section(
        "Noisy and missing results",
        f"A result is noisy if the interval of its median is wider than ± {MAX_RELATIVE_INTERVAL:.0%}, or if more than "
        f"{MAX_DISTURBED_FRACTION:.0%} of its samples were interrupted by other work on the core.",
        blocks,
    )


def _build_failed_table(broken: Sequence[tuple[RunView, Record]], names: CaseNames) -> Table:
    columns = [*_LOCATION_COLUMNS, Column("Status", quick=True), Column("Reason", "prose")]
    rows: list[Row] = [
        [*_make_location_cells(run, record, names), make_status_cell(record), record.reason] for run, record in broken
    ]
    return Table(columns, rows, "Cases without a result")


def _build_noisy_table(uncertain: Sequence[tuple[RunView, Record, RecordSummary]], names: CaseNames) -> Table:
    columns = [
        *_LOCATION_COLUMNS,
        Column("Median", "number"),
        Column("Interval", "number", hint=INTERVAL_HINT),
        Column("Interrupted", "number", hint="fraction of samples during which other work ran on the core"),
        Column("Reason", "prose"),
    ]
    rows: list[Row] = [
        [
            *_make_location_cells(run, record, names),
            make_value_cell(summary.median, record.unit),
            make_share_cell(summary.relative, "± "),
            make_share_cell(summary.disturbed),
            "; ".join(summary.noise),
        ]
        for run, record, summary in uncertain
    ]
    return Table(columns, rows, "Noisy results")


_LOCATION_COLUMNS = (Column("Case"), Column("Feature", quick=True), Column("Run", quick=True))


def _make_location_cells(run: RunView, record: Record, names: CaseNames) -> tuple[Cell, str, str]:
    return names[record.case.key].cell, record.case.feature, run.name
