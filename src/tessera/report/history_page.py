"""A history as a page of its own, made of the report's blocks."""

from __future__ import annotations

from collections import Counter

from tessera.report.blocks import Card, Cards, Column, Row, Section, Table
from tessera.report.figures import format_percent
from tessera.report.history_blocks import history_blocks
from tessera.report.history_text import MEANING, day, word
from tessera.report.page import document
from tessera.results.changepoints import MIN_RUNS
from tessera.results.history import History


def history_page(history: History, title: str) -> str:
    """The page as text."""
    parts = [
        Section("Summary", "", [_cards(history)]),
        Section("History", _intro(history), history_blocks(history)),
    ]
    if history.apart:
        parts.append(Section("In no line", "Records that may not be compared with the newest.", [_apart(history)]))
    return document(parts, title=title, kicker=f"{history.metric} over {len(history.runs)} runs")


def _cards(history: History) -> Cards:
    kinds = Counter(word(change) for _, change in history.changes)
    worse, better = kinds["worse"], kinds["better"]
    judged = sum(series.judged for series in history.series)
    days = [day(point.started) for series in history.series for point in (series.points[0], series.points[-1])]
    return Cards(
        [
            Card("Cases", f"{len(history.series):,}", f"{judged:,} with runs enough to judge"),
            Card("Runs", f"{len(history.runs):,}", f"{min(days)} to {max(days)}"),
            Card("Worse", f"{worse:,}", "changes", "bad" if worse else "muted"),
            Card("Better", f"{better:,}", "changes", "good" if better else "muted"),
            Card("In no line", f"{len(history.apart):,}", "records, listed below" if history.apart else "", "muted"),
        ]
    )


def _intro(history: History) -> str:
    return (
        "Each dot is a run and each line a level. A change is called when it is larger than "
        f"{format_percent(history.threshold)} and cannot be noise; it takes {MIN_RUNS} runs to tell."
    )


def _apart(history: History) -> Table:
    rows: list[Row] = [[apart.key, apart.run, MEANING[apart.why]] for apart in history.apart]
    return Table(["Case", Column("Run", quick=True), Column("Why", quick=True)], rows, "Not compared")
