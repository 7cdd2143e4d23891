"""The top of the page: what ran, where, how it ended, and what deserves a second look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tessera.report.attention import attention_section, noisy
from tessera.report.blocks import Card, Cards, Cell, Column, Heading, Row, Section, Table
from tessera.report.cells import number
from tessera.report.environment import environment_section
from tessera.report.figures import format_seconds
from tessera.report.runs import RunView, features


def summary_section(runs: Sequence[RunView], more: Sequence[Card] = ()) -> Section:
    """Key figures, the runs, their environment and what deserves a second look; `more` cards come second."""
    return Section(
        "Summary",
        "",
        [
            Cards([*_cards(runs)[:1], *more, *_cards(runs)[1:]]),
            _runs(runs),
            attention_section(runs),
            environment_section(runs),
        ],
    )


def _cards(runs: Sequence[RunView]) -> list[Card]:
    ended = Counter(record.status for run in runs for record in run.records)
    total, heights = ended.total(), features(runs)
    uncertain = sum(1 for _ in noisy(runs))
    return [
        Card("Cases measured", f"{ended['ok']:,}", f"of {total:,}", "good" if ended["ok"] == total else ""),
        Card(
            "Failed", f"{ended['failed']:,}", "the reasons are below", "bad" if ended["failed"] else "muted"
        ),
        Card("Timed out", f"{ended['timed_out']:,}", "", "bad" if ended["timed_out"] else "muted"),
        Card(
            "Refused",
            f"{ended['refused']:,}",
            "understood, deliberately not run",
            "" if ended["refused"] else "muted",
        ),
        Card("Noisy", f"{uncertain:,}", "to be taken with care", "warn" if uncertain else "muted"),
        Card("Time taken", format_seconds(sum(run.seconds for run in runs)), f"{len(heights)} features"),
    ]


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
            run.created,
            number(len(run.records)),
            number(sum(record.status == "ok" for record in run.records)),
            Cell(format_seconds(run.seconds), run.seconds),
            ", ".join(features([run])),
            run.command,
        ]
        for run in runs
    ]
    return Table(columns, rows, "What ran")
