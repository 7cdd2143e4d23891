"""The top of the page: what ran, where, how it ended, and what deserves a second look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from tessera.report.attention import attention_section, noisy
from tessera.report.blocks import Block, Card, Cards, Cell, Column, Heading, Row, Section, Table, Tone
from tessera.report.cells import number
from tessera.report.environment import environment_section
from tessera.report.figures import format_seconds
from tessera.report.runs import RunView, features


def summary_section(runs: Sequence[RunView], changes: Sequence[Card] = ()) -> Section:
    """Key figures, the runs, what deserves a second look, the environment; `changes` are more key figures."""
    measured, *others = _cards(runs)
    blocks: list[Block] = [
        Cards([measured, *changes, *others]),
        _runs(runs),
        attention_section(runs),
        environment_section(runs),
    ]
    return Section("Summary", "", blocks)


def _cards(runs: Sequence[RunView]) -> list[Card]:
    ended = Counter(record.status for run in runs for record in run.records)
    heights = len(features(runs))
    return [
        Card("Measured", f"{ended['ok']:,}", f"of {ended.total():,} cases"),
        _count("Failed", ended["failed"], "reasons below", "bad"),
        _count("Timed out", ended["timed_out"], "reasons below", "bad"),
        _count("Refused", ended["refused"], "on purpose", ""),
        _count("Noisy", sum(1 for _ in noisy(runs)), "take with care", "warn"),
        Card(
            "Time taken",
            format_seconds(sum(run.seconds for run in runs)),
            "1 feature" if heights == 1 else f"{heights} features",
        ),
    ]


def _count(label: str, count: int, remark: str, tone: Tone) -> Card:
    """A number that is best at zero, which is then shown quietly."""
    return Card(label, f"{count:,}", remark, tone) if count else Card(label, "0", "", "muted")


def _moment(text: str) -> str:
    """A stored date to the minute, as its own clock showed it.

    >>> _moment("2026-03-01T12:00:59+01:00")
    '2026-03-01 12:00'
    """
    try:
        return f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M}"
    except ValueError:
        return text


def _runs(runs: Sequence[RunView]) -> Table:
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
            _moment(run.created),
            number(len(run.records)),
            number(sum(record.status == "ok" for record in run.records)),
            Cell(format_seconds(run.seconds), run.seconds),
            ", ".join(features([run])),
            run.command,
        ]
        for run in runs
    ]
    return Table(columns, rows, "What ran")
