"""The history page: a plot of each case with its levels and changes, and tables of levels and changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tessera.report.blocks import Block, Card, Cards, Cell, Column, Columns, Plot, Section, Table, Text, Tone, tabulate
from tessera.report.cells import EMPTY_CELL, make_change_cell, make_count_cell, make_value_cell
from tessera.report.figures import format_change, format_percent, format_value
from tessera.report.history_text import EXCLUSION_TEXTS, describe_change, format_day
from tessera.report.naming import CaseNames, name_cases
from tessera.report.page import build_document
from tessera.results.changepoints import MIN_RUNS
from tessera.results.history import Change, ExcludedRecord, History, MetricSeries, SeriesChange


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
    columns: Columns[ExcludedRecord] = {
        "Case": lambda excluded: excluded.key,
        Column("Run", quick=True): lambda excluded: excluded.run,
        Column("Why", quick=True): lambda excluded: EXCLUSION_TEXTS[excluded.why],
    }
    return tabulate(columns, history.excluded, "Not compared")


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
        "text": format_change(change.change),
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
    columns: Columns[SeriesChange] = {
        "Case": lambda entry: names[entry.series.case.key].cell,
        Column("Effect", quick=True): lambda entry: Cell(
            describe_change(entry.change), tone=CHANGE_TONES[entry.change.harmful]
        ),
        Column("Since", quick=True): lambda entry: format_day(entry.change.started),
        Column("Run", quick=True): lambda entry: entry.change.run,
        Column("From", "number"): lambda entry: make_value_cell(entry.change.before, entry.series.unit),
        Column("To", "number"): lambda entry: make_value_cell(entry.change.after, entry.series.unit),
        Column("Change", "number"): lambda entry: make_change_cell(entry.change.change),
        Column("Runs since", "number", hint="runs of the new level"): lambda entry: make_count_cell(entry.change.age),
    }
    return tabulate(columns, history.changes, "Changes, the most harmful first")


def _build_cases_table(ordered: Sequence[MetricSeries], names: CaseNames) -> Table:
    def get_level(series: MetricSeries, index: int) -> float:
        return series.list_levels()[index][2]

    columns: Columns[MetricSeries] = {
        "Case": lambda series: names[series.case.key].cell,
        Column("Runs", "number"): lambda series: make_count_cell(len(series.points)),
        Column("First level", "number"): lambda series: make_value_cell(get_level(series, 0), series.unit),
        Column("Newest level", "number"): lambda series: make_value_cell(get_level(series, -1), series.unit),
        Column("Total change", "number"): lambda series: (
            make_change_cell(get_level(series, -1) / get_level(series, 0) - 1) if series.changes else EMPTY_CELL
        ),
        Column("Changes", "number"): lambda series: make_count_cell(len(series.changes)),
    }
    return tabulate(columns, ordered, "Every case over the runs")
