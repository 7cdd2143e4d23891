"""Plots with one row per case: medians with their intervals, and the layout of such plots.

The name of a row is printed above its marks, so that long names do not reduce the width of the plot.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tessera.report.blocks import Plot
from tessera.report.figures import format_value
from tessera.report.measured import RecordSummary, summarize_record
from tessera.report.runs import RunView
from tessera.report.svg import get_series_colour
from tessera.results.record import Record

# Maximum number of rows with one case each; with more cases, cases with equal names share a row.
MAX_CASE_ROWS = 30
# Largest ratio of values drawn as bars from zero; above it, values are dots on a logarithmic axis.
MAX_BAR_RATIO = 20.0

MeasuredRecords = list[tuple[Record, RecordSummary]]


def plot_medians(runs: Sequence[RunView], varying: Sequence[str]) -> list[Plot]:
    """Build one plot of medians per unit: bars for a few cases of similar size, otherwise dots.

    `varying` names the parameters that distinguish the cases.
    """
    measured = {run.name: _collect_measured(run) for run in runs}
    units = dict.fromkeys(record.unit for pairs in measured.values() for record, _ in pairs)
    return [
        _plot_unit({name: [p for p in pairs if p[0].unit == unit] for name, pairs in measured.items()}, unit, varying)
        for unit in units
    ]


def _collect_measured(run: RunView) -> MeasuredRecords:
    return [(r, summary) for r in run.records if r.status == "ok" and (summary := summarize_record(r))]


def _plot_unit(measured: dict[str, MeasuredRecords], unit: str, varying: Sequence[str]) -> Plot:
    records = [record for pairs in measured.values() for record, _ in pairs]
    crowded = len({format_row_name(record, varying) for record in records}) > MAX_CASE_ROWS
    if crowded:
        varying = ()
    labels = list(dict.fromkeys(format_row_name(record, varying) for record in records))
    medians = [m.median for pairs in measured.values() for _, m in pairs]
    positive = min(medians) > 0
    bars = not crowded and positive and max(medians) < MAX_BAR_RATIO * min(medians)
    traces = [
        _make_trace(name, pairs, [format_row_name(r, varying) for r, _ in pairs], get_series_colour(n), bars)
        for n, (name, pairs) in enumerate(measured.items())
        if pairs
    ]
    logarithmic = positive and not bars
    layout = make_row_layout(labels, len(traces), legend=len(traces) > 1)
    layout["xaxis"] = make_value_axis(unit, logarithmic=logarithmic)
    what = "Each dot is the median of a case" if crowded else "The median of each case with its interval"
    caption = f"{what}; logarithmic axis." if logarithmic else f"{what}."
    return Plot({"data": traces, "layout": layout}, caption)


def _make_trace(name: str, pairs: MeasuredRecords, labels: Sequence[str], colour: str, bars: bool) -> dict[str, Any]:
    kind: dict[str, Any] = (
        {"type": "bar", "marker": {"color": colour, "cornerradius": 3}}
        if bars
        else {"type": "scatter", "mode": "markers", "marker": {"color": colour, "size": 9, "opacity": 0.75}}
    )
    return kind | {
        "orientation": "h",
        "name": name,
        "x": [m.median for _, m in pairs],
        "y": list(labels),
        "hovertext": [f"{r.case.key}: {format_value(m.median, r.unit)}" for r, m in pairs],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "error_x": make_error_bars([(m.low, m.median, m.high) for _, m in pairs])
        | {"color": "var(--ink)" if bars else colour},
    }


def make_error_bars(
    intervals: Iterable[tuple[float | None, float, float | None]], *, thickness: float = 1.2, width: int = 3
) -> dict[str, Any]:
    """Make error bars from intervals (low, value, high); a missing bound has no bar."""
    bounds = list(intervals)
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - value if high is not None else 0.0 for _, value, high in bounds],
        "arrayminus": [value - low if low is not None else 0.0 for low, value, _ in bounds],
        "thickness": thickness,
        "width": width,
    }


def format_row_name(record: Record, varying: Sequence[str]) -> str:
    """Return the name of a row: the name of its case and the values of the varying parameters."""
    values = [str(record.case.params[name]) for name in varying if name in record.case.params]
    return " ".join([record.case.name, *values])


# Heights in pixels: one mark, a row name with its margin, the axis at the top, the legend above the axis.
MARK_HEIGHT, NAME_HEIGHT, AXIS_HEIGHT, LEGEND_HEIGHT = 13, 28, 36, 28


def make_row_layout(names: Sequence[str], marks: int = 1, *, legend: bool = False) -> dict[str, Any]:
    """Make the layout of a plot with one row per name, the first at the top, and `marks` marks per row."""
    top = AXIS_HEIGHT + LEGEND_HEIGHT * legend
    return {
        "height": top + len(names) * (MARK_HEIGHT * marks + NAME_HEIGHT),
        "margin": {"t": top, "b": 4},
        "showlegend": legend,
        "legend": {"yref": "container", "y": 1, "yanchor": "top", "x": 0},
        "bargap": 0.6,
        "scattermode": "group",
        "scattergap": 0.6,
        "yaxis": {
            "type": "category",
            "categoryorder": "array",
            "categoryarray": list(names),
            "range": [len(names) - 0.5, -0.7],
            "showticklabels": False,
            "ticks": "",
            "showgrid": False,
            "fixedrange": True,
        },
        # Row names are annotations, because axis labels would need a margin.
        "annotations": [
            {
                "text": name,
                "y": place,
                "yshift": MARK_HEIGHT * marks / 2 + 8,
                "xref": "paper",
                "x": 0,
                "xanchor": "left",
                "showarrow": False,
                "font": {"size": 12},
            }
            for place, name in enumerate(names)
        ],
    }


def make_value_axis(unit: str, *, logarithmic: bool) -> dict[str, Any]:
    """Make the value axis at the top of a plot, with SI prefixes."""
    axis = {
        "side": "top",
        "tickangle": 0,
        "exponentformat": "SI",
        "minexponent": 0,
        "ticksuffix": unit,
        # A long unit at every tick would be too wide for a phone.
        "showticksuffix": "all" if len(unit) <= 3 else "last",
    }
    return axis | ({"type": "log", "dtick": 1} if logarithmic else {"rangemode": "tozero"})
