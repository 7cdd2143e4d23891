"""The history page: a plot of each case with its levels and changes, and tables of levels and changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tessera.report.blocks import Block, Card, Cards, Cell, Column, Heading, Plot, Row, Section, Table, Text, Tone
from tessera.report.cells import EMPTY_CELL, make_count_cell, make_value_cell
from tessera.report.figures import format_percent, format_value
from tessera.report.history_text import EXCLUSION_TEXTS, describe_change, format_day
from tessera.report.naming import CaseNames, name_cases
from tessera.report.page import build_document
from tessera.results.changepoints import MIN_RUNS
from tessera.results.history import Change, History, MetricSeries


def build_history_page(history: History, title: str) -> str:
    """Build the history page as HTML."""
    parts = [
        Section("Summary", "", [_build_cards(history)]),
        Section("History", _format_intro(history), build_history_blocks(history)),
    ]
    if history.excluded:
        parts.append(
            Section(
                "Excluded records",
                "Records that are not comparable with the newest record.",
                [_build_excluded_table(history)],
            )
        )
    return build_document(parts, title=title, subtitle=f"{history.metric} over {len(history.runs)} runs")


def _build_cards(history: History) -> Cards:
    kinds = Counter(describe_change(change) for _, change in history.changes)
    worse, better = kinds["worse"], kinds["better"]
    judged = sum(series.judged for series in history.series)
    days = [format_day(point.started) for series in history.series for point in (series.points[0], series.points[-1])]
    return Cards(
        [
            Card("Cases", f"{len(history.series):,}", f"{judged:,} with enough runs to detect changes"),
            Card("Runs", f"{len(history.runs):,}", f"{min(days)} to {max(days)}"),
            Card("Worse", f"{worse:,}", "changes", "bad" if worse else "muted"),
            Card("Better", f"{better:,}", "changes", "good" if better else "muted"),
            Card(
                "Excluded", f"{len(history.excluded):,}", "records, listed below" if history.excluded else "", "muted"
            ),
        ]
    )


def _format_intro(history: History) -> str:
    return (
        "Each dot is a run and each line a level. A change is reported if it is larger than "
        f"{format_percent(history.threshold)} and larger than the noise; this requires {MIN_RUNS} runs."
    )


def _build_excluded_table(history: History) -> Table:
    rows: list[Row] = [[excluded.key, excluded.run, EXCLUSION_TEXTS[excluded.why]] for excluded in history.excluded]
    return Table(["Case", Column("Run", quick=True), Column("Why", quick=True)], rows, "Not compared")


MAX_PLOTS = 8
MAX_TICKS = 4  # dates that fit below a plot on a phone
CHANGE_TONES: dict[bool | None, Tone] = {True: "bad", False: "good", None: "muted"}
CHANGE_COLOURS = {True: "var(--bad)", False: "var(--good)", None: "var(--muted)"}


def build_history_blocks(history: History) -> list[Block]:
    """Build the table of changes, plots (at most `MAX_PLOTS`, the most changed cases), and a table of all cases."""
    names = name_cases([series.case for series in history.series])
    changed = list({series.case.key: series for series, _ in history.changes}.values())
    blocks: list[Block] = []
    if history.common_change_run:
        at = history.common_change_run
        blocks.append(Text(f"Half of all cases changed at `{at}`: check the machine and the libraries first.", "warn"))
    if changed:
        blocks.append(_build_changes_table(history, names))
    elif any(series.judged for series in history.series):
        blocks.append(Text("No case has a lasting change.", "good"))
    rest = [series for series in history.series if not series.changes]
    shown = [*changed, *rest] if len(history.series) <= MAX_PLOTS else changed[:MAX_PLOTS]
    blocks += [_plot_series(series, names) for series in shown if len(series.points) > 1]
    if len(history.series) > 1:
        blocks.append(_build_cases_table([*changed, *rest], names))
    return blocks


def _plot_series(series: MetricSeries, names: CaseNames) -> Plot:
    count = len(series.points)
    dots = {
        "type": "scatter",
        "mode": "markers",
        "x": list(range(count)),
        "y": series.values,
        "text": [f"{p.run}, {format_day(p.started)}: {format_value(p.value, series.unit)}" for p in series.points],
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"size": 7, "color": "var(--series-1)", "opacity": 0.75},
    }
    lines: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines",
        "x": [x for start, end, _ in series.list_levels() for x in (start - 0.4, end - 0.6, None)],
        "y": [y for _, _, level in series.list_levels() for y in (level, level, None)],
        "hoverinfo": "skip",
        "line": {"color": "var(--ink)", "width": 1.6},
    }
    every = max(1, -(-(count - 1) // (MAX_TICKS - 1)))
    places = list(range(0, count, every))
    layout = {
        "height": 230,
        "showlegend": False,
        "margin": {"t": 26},
        "xaxis": {
            "range": [-0.6, count - 0.4],
            "tickvals": places,
            "ticktext": [format_day(series.points[place].started) for place in places],
            "tickangle": 0,
            "showgrid": False,
        },
        "yaxis": {
            "exponentformat": "SI",
            "minexponent": 0,
            "nticks": 5,
            "ticksuffix": series.unit,
            "showticksuffix": "all" if len(series.unit) <= 3 else "last",
        },
        "shapes": [_make_change_line(change) for change in series.changes],
        "annotations": [_make_change_label(change, count) for change in series.changes],
    }
    return Plot({"data": [lines, dots], "layout": layout}, names[series.case.key].phrase)


def _make_change_line(change: Change) -> dict[str, Any]:
    line = {"color": CHANGE_COLOURS[change.harmful], "width": 1.2, "dash": "dot"}
    place = change.start - 0.5
    return {"type": "line", "x0": place, "x1": place, "yref": "paper", "y0": 0, "y1": 1, "line": line}


def _make_change_label(change: Change, count: int) -> dict[str, Any]:
    return {
        "text": format_percent(change.change, signed=True),
        "x": change.start - 0.5,
        # Near the right edge the text is on the left of its line.
        "xanchor": "right" if change.start > 0.8 * count else "left",
        "yref": "paper",
        "y": 1,
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"color": CHANGE_COLOURS[change.harmful], "size": 12},
    }


def _build_changes_table(history: History, names: CaseNames) -> Table:
    columns: list[Heading] = [
        "Case",
        Column("Effect", quick=True),
        Column("Since", quick=True),
        Column("Run", quick=True),
        Column("From", "number"),
        Column("To", "number"),
        Column("Change", "number"),
        Column("Runs since", "number", hint="runs of the new level"),
    ]
    rows: list[Row] = [
        [
            names[series.case.key].cell,
            Cell(describe_change(change), tone=CHANGE_TONES[change.harmful]),
            format_day(change.started),
            change.run,
            make_value_cell(change.before, series.unit),
            make_value_cell(change.after, series.unit),
            Cell(format_percent(change.change, signed=True), change.change),
            make_count_cell(change.age),
        ]
        for series, change in history.changes
    ]
    return Table(columns, rows, "Changes, the most harmful first")


def _build_cases_table(ordered: Sequence[MetricSeries], names: CaseNames) -> Table:
    columns: list[Heading] = [
        "Case",
        Column("Runs", "number"),
        Column("First level", "number"),
        Column("Newest level", "number"),
        Column("Total change", "number"),
        Column("Changes", "number"),
    ]
    rows: list[Row] = []
    for series in ordered:
        first, last = series.list_levels()[0][2], series.list_levels()[-1][2]
        moved = Cell(format_percent(last / first - 1, signed=True), last / first - 1) if series.changes else EMPTY_CELL
        counts = make_count_cell(len(series.points)), make_count_cell(len(series.changes))
        levels = make_value_cell(first, series.unit), make_value_cell(last, series.unit)
        rows.append([names[series.case.key].cell, counts[0], *levels, moved, counts[1]])
    return Table(columns, rows, "Every case over the runs")
