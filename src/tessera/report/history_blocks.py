"""A history as blocks of a page: a line for each case, its levels and changes, and tables of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.report.blocks import Block, Cell, Column, Heading, Plot, Row, Table, Text, Tone
from tessera.report.cells import NONE, figure, number
from tessera.report.figures import format_percent, format_value
from tessera.report.history_text import day, word
from tessera.report.naming import Names, case_names
from tessera.results.history import Change, History, Series

MOST_PLOTS = 8
MOST_TICKS = 4  # dates that fit below a plot on a phone
TONES: dict[bool | None, Tone] = {True: "bad", False: "good", None: "muted"}
COLOURS = {True: "var(--bad)", False: "var(--good)", None: "var(--muted)"}


def history_blocks(history: History) -> list[Block]:
    """The changes, a plot of each case (of many, of those that changed most), and a table of all."""
    names = case_names([series.case for series in history.series])
    changed = list({series.case.key: series for series, _ in history.changes}.values())
    blocks: list[Block] = []
    if history.moved_together:
        at = history.moved_together
        blocks.append(
            Text(f"Half of all cases changed at `{at}`: look at the machine and the libraries first.", "warn")
        )
    if changed:
        blocks.append(_changes(history, names))
    elif any(series.judged for series in history.series):
        blocks.append(Text("No case changed its level for good.", "good"))
    rest = [series for series in history.series if not series.changes]
    shown = [*changed, *rest] if len(history.series) <= MOST_PLOTS else changed[:MOST_PLOTS]
    blocks += [_plot(series, names) for series in shown if len(series.points) > 1]
    if len(history.series) > 1:
        blocks.append(_cases([*changed, *rest], names))
    return blocks


def _plot(series: Series, names: Names) -> Plot:
    count = len(series.points)
    dots = {
        "type": "scatter",
        "mode": "markers",
        "x": list(range(count)),
        "y": series.values,
        "text": [f"{p.run}, {day(p.started)}: {format_value(p.value, series.unit)}" for p in series.points],
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"size": 7, "color": "var(--series-1)", "opacity": 0.75},
    }
    lines: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines",
        "x": [x for start, end, _ in series.levels() for x in (start - 0.4, end - 0.6, None)],
        "y": [y for _, _, level in series.levels() for y in (level, level, None)],
        "hoverinfo": "skip",
        "line": {"color": "var(--ink)", "width": 1.6},
    }
    every = max(1, -(-(count - 1) // (MOST_TICKS - 1)))
    places = list(range(0, count, every))
    layout = {
        "height": 230,
        "showlegend": False,
        "margin": {"t": 26},
        "xaxis": {
            "range": [-0.6, count - 0.4],
            "tickvals": places,
            "ticktext": [day(series.points[place].started) for place in places],
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
        "shapes": [_mark(change) for change in series.changes],
        "annotations": [_note(change, count) for change in series.changes],
    }
    return Plot({"data": [lines, dots], "layout": layout}, names[series.case.key].spoken)


def _mark(change: Change) -> dict[str, Any]:
    line = {"color": COLOURS[change.harmful], "width": 1.2, "dash": "dot"}
    place = change.start - 0.5
    return {"type": "line", "x0": place, "x1": place, "yref": "paper", "y0": 0, "y1": 1, "line": line}


def _note(change: Change, count: int) -> dict[str, Any]:
    return {
        "text": format_percent(change.change, signed=True),
        "x": change.start - 0.5,
        # Near the right edge the words stand on the left of their line.
        "xanchor": "right" if change.start > 0.8 * count else "left",
        "yref": "paper",
        "y": 1,
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"color": COLOURS[change.harmful], "size": 12},
    }


def _changes(history: History, names: Names) -> Table:
    columns: list[Heading] = [
        "Case",
        Column("Is", quick=True),
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
            Cell(word(change), tone=TONES[change.harmful]),
            day(change.started),
            change.run,
            figure(change.before, series.unit),
            figure(change.after, series.unit),
            Cell(format_percent(change.change, signed=True), change.change),
            number(change.age),
        ]
        for series, change in history.changes
    ]
    return Table(columns, rows, "Changes, the most harmful first")


def _cases(ordered: Sequence[Series], names: Names) -> Table:
    columns: list[Heading] = [
        "Case",
        Column("Runs", "number"),
        Column("First level", "number"),
        Column("Newest level", "number"),
        Column("Change in all", "number"),
        Column("Changes", "number"),
    ]
    rows: list[Row] = []
    for series in ordered:
        first, last = series.levels()[0][2], series.levels()[-1][2]
        moved = Cell(format_percent(last / first - 1, signed=True), last / first - 1) if series.changes else NONE
        counts = number(len(series.points)), number(len(series.changes))
        levels = figure(first, series.unit), figure(last, series.unit)
        rows.append([names[series.case.key].cell, counts[0], *levels, moved, counts[1]])
    return Table(columns, rows, "Every case over the runs")
