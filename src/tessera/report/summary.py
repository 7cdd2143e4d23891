"""The first and the last section of the page: health and findings; runs, unreliable results and environment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from tessera.report.blocks import (
    Block,
    Card,
    Cards,
    Column,
    Columns,
    Section,
    Statement,
    Statements,
    Table,
    Text,
    Tone,
    tabulate,
)
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


def build_summary_section(
    runs: Sequence[RunView], changes: Sequence[Card] = (), findings: Sequence[Statement] = ()
) -> Section:
    """Build the first section: the health of the runs, and findings; `changes` are cards of the comparison."""
    measured, *others = _build_cards(runs)
    blocks: list[Block] = [Cards([measured, *changes, *others])]
    if findings:
        blocks.append(Section("Findings", "", [Statements(findings)]))
    return Section("Summary", "", blocks)


def build_details_section(runs: Sequence[RunView]) -> Section:
    """Build the last section: the runs, their noisy and missing results, and their environment."""
    blocks: list[Block] = [_build_runs_table(runs), build_attention_section(runs), build_environment_section(runs)]
    return Section("Details", "", blocks)


def _build_cards(runs: Sequence[RunView]) -> list[Card]:
    ended = Counter(record.status for run in runs for record in run.records)
    feature_count = len(list_features(runs))
    return [
        Card("Measured", f"{ended['ok']:,}", f"of {ended.total():,} cases"),
        _make_count_card("Failed", ended["failed"], "reasons at the end", "bad"),
        _make_count_card("Timed out", ended["timed_out"], "reasons at the end", "bad"),
        _make_count_card("Refused", ended["refused"], "not supported", ""),
        _make_count_card("Noisy", sum(1 for _ in iter_noisy(runs)), "listed at the end", "warn"),
        Card(
            "Time taken",
            format_seconds(sum(run.seconds for run in runs)),
            "1 feature" if feature_count == 1 else f"{feature_count} features",
        ),
    ]


def _make_count_card(label: str, count: int, remark: str, tone: Tone) -> Card:
    """Make the card of a count that should be zero, with `tone` if it is not zero."""
    return Card(label, f"{count:,}", remark, tone) if count else Card(label, "0", "", "muted")


def format_minute(text: str) -> str:
    """Format a stored date to the minute, in its original time zone.

    >>> format_minute("2026-03-01T12:00:59+01:00")
    '2026-03-01 12:00'
    """
    try:
        return f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M}"
    except ValueError:
        return text


def _build_runs_table(runs: Sequence[RunView]) -> Table:
    columns: Columns[RunView] = {
        "Run": lambda run: run.name,
        "Started": lambda run: format_minute(run.created),
        Column("Cases", "number"): lambda run: make_count_cell(len(run.records)),
        Column("Measured", "number"): lambda run: make_count_cell(sum(r.status == "ok" for r in run.records)),
        Column("Time taken", "number"): lambda run: make_value_cell(run.seconds, "s"),
        "Features": lambda run: ", ".join(list_features([run])),
        Column("Command", "prose"): lambda run: run.command,
    }
    return tabulate(columns, runs, "Runs")


class NoisyRecord(NamedTuple):
    """A record with an unreliable median, its run and its summary."""

    run: RunView
    record: Record
    summary: RecordSummary


def iter_noisy(runs: Sequence[RunView]) -> Iterator[NoisyRecord]:
    """Yield the records with an unreliable median."""
    for run in runs:
        for record in run.records:
            if record.status == "ok" and (summary := summarize_record(record)) and summary.noise:
                yield NoisyRecord(run, record, summary)


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
    columns: Columns[tuple[RunView, Record]] = {
        "Case": lambda pair: names[pair[1].case.key].cell,
        Column("Feature", quick=True): lambda pair: pair[1].case.feature,
        Column("Run", quick=True): lambda pair: pair[0].name,
        Column("Status", quick=True): lambda pair: make_status_cell(pair[1]),
        Column("Reason", "prose"): lambda pair: pair[1].reason,
    }
    return tabulate(columns, broken, "Cases without a result")


def _build_noisy_table(uncertain: Sequence[NoisyRecord], names: CaseNames) -> Table:
    columns: Columns[NoisyRecord] = {
        "Case": lambda noisy: names[noisy.record.case.key].cell,
        Column("Feature", quick=True): lambda noisy: noisy.record.case.feature,
        Column("Run", quick=True): lambda noisy: noisy.run.name,
        Column("Median", "number"): lambda noisy: make_value_cell(noisy.summary.median, noisy.record.unit),
        Column("Interval", "number", hint=INTERVAL_HINT): lambda noisy: make_share_cell(noisy.summary.relative, "± "),
        Column("Interrupted", "number", hint="fraction of samples during which other work ran on the core"): (
            lambda noisy: make_share_cell(noisy.summary.disturbed)
        ),
        Column("Reason", "prose"): lambda noisy: "; ".join(noisy.summary.noise),
    }
    return tabulate(columns, uncertain, "Noisy results")
