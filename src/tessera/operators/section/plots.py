"""Plots with one row per operator case: rates, and the spread of launches. Also the axis of plots of ratios."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from tessera.measure.statistics import summarize
from tessera.report.blocks import Plot
from tessera.report.plots import format_row_name, make_row_layout, make_value_axis
from tessera.report.runs import RunView
from tessera.results.record import Record


def build_rate_plot(runs: Sequence[RunView], varying: Sequence[str], metric: str, title: str) -> Plot | None:
    """Plot a rate (`metric`) of each case as a bar; the tooltip shows the share of the roofline."""
    traces: list[dict[str, Any]] = []
    names: dict[str, None] = {}
    for number, run in enumerate(runs):
        records = [record for record in run.records if metric in record.metrics]
        labels = [format_row_name(record, varying) for record in records]
        names.update(dict.fromkeys(labels))
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": run.name,
                "y": labels,
                "x": [record.metrics[metric].value for record in records],
                "text": [_format_roofline(record) for record in records],
                "textposition": "none",
                "hovertemplate": "%{x:.3g} " + title + "<br>%{text}<extra></extra>",
                "marker": {"color": f"var(--series-{number % 6 + 1})"},
            }
        )
    if not names:
        return None
    layout = make_row_layout(list(names), len(traces), legend=len(traces) > 1)
    layout["xaxis"] = make_value_axis(title, logarithmic=False)
    what = "Computed" if metric == "gflops" else "Moved"
    return Plot({"data": traces, "layout": layout}, f"{what} per second, {title}.")


def _format_roofline(record: Record) -> str:
    share = record.metrics.get("roofline")
    return f"{share.value:.0%} of the calibrated machine" if share else "machine not calibrated"


def build_launch_plot(runs: Sequence[RunView], varying: Sequence[str]) -> Plot | None:
    """Plot the noise between launches: one dot per launch, relative to the median launch of its case."""
    traces = []
    names: dict[str, None] = {}
    for number, run in enumerate(runs):
        x: list[float] = []
        y: list[str] = []
        for record in run.records:
            lows = [summarize(launch.values).p25 for launch in record.launches if launch.values]
            if len(lows) < 2:
                continue
            middle = summarize(lows).median
            x.extend(100 * (low / middle - 1) for low in lows)
            y.extend([format_row_name(record, varying)] * len(lows))
        names.update(dict.fromkeys(y))
        marker = {"color": f"var(--series-{number % 6 + 1})", "size": 8, "opacity": 0.75}
        traces.append(make_dots(run.name, x, y, "%{x:+.2f} % from the median launch", marker=marker))
    if not names:
        return None
    layout = make_row_layout(list(names), 1, legend=len(traces) > 1)
    layout["xaxis"] = {"side": "top", "ticksuffix": " %", "zeroline": True}
    return Plot(
        {"data": traces, "layout": layout},
        "Each launch of a case (lower quartile of its samples) relative to the median launch. A change smaller than "
        "this spread cannot be distinguished from noise.",
    )


# If maximum / minimum of the values is below this, the axis has ticks at 1, 2 and 5 times each power of ten; otherwise
# at powers of ten only.
DENSE_TICK_RANGE = 100.0


def make_ratio_axis(values: Iterable[float]) -> dict[str, Any]:
    """Make a logarithmic axis above the plot with ticks such as 0.5x, 1x and 2x.

    >>> make_ratio_axis([0.4, 3.0])["ticktext"]
    ['0.2x', '0.5x', '1x', '2x', '5x']
    """
    known = [value for value in values if 0 < value < math.inf] or [1.0]
    low, high = min(1.0, *known), max(1.0, *known)
    steps = (1, 2, 5) if high / low < DENSE_TICK_RANGE else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**power for power in powers for step in steps]
    shown = [tick for tick in ticks if low / 2.5 <= tick <= high * 2.5]
    return {
        "side": "top",
        "type": "log",
        "tickangle": 0,
        "tickvals": shown,
        "ticktext": [format_times(t, "g") for t in shown],
    }


def make_dots(name: str, x: Sequence[Any], y: Sequence[Any], hover: str, **rest: Any) -> dict[str, Any]:
    """Make a trace of dots; `hover` is the text of a dot's tooltip."""
    trace = {"type": "scatter", "mode": "markers", "name": name, "x": x, "y": y}
    return trace | {"hovertemplate": f"{hover}<extra></extra>", **rest}


def make_ratio_layout(rows: Sequence[str], ratios: Iterable[float]) -> dict[str, Any]:
    """Make the layout of a plot of ratios with one row per name, a logarithmic axis and a line at 1."""
    layout = make_row_layout(rows, 1, legend=True)
    return layout | {"scattermode": "overlay", "xaxis": make_ratio_axis(ratios), "shapes": [make_even_line()]}


def make_even_line() -> dict[str, Any]:
    """Make the vertical line at a ratio of 1 (equal times)."""
    line = {"color": "var(--muted)", "width": 1, "dash": "dot"}
    return {"type": "line", "x0": 1, "x1": 1, "yref": "paper", "y0": 0, "y1": 1, "line": line}


def format_times(ratio: float, form: str = ".2f") -> str:
    """Format a ratio as a factor; a ratio near zero keeps two significant digits.

    >>> format_times(2.0), format_times(0.00276)
    ('2.00x', '0.0028x')
    """
    return f"{ratio:{form}}x" if ratio >= 0.1 or form != ".2f" else f"{ratio:.2g}x"
