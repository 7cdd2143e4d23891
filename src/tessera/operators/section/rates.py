"""Plots of a few operator cases, a row for each: rates against the machine, and how far launches lie apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.measure.statistics import summarize
from tessera.report.blocks import Plot
from tessera.report.medians import row_name
from tessera.report.rows import row_layout, value_axis
from tessera.report.runs import RunView
from tessera.results.record import Record


def rate_plot(runs: Sequence[RunView], varying: Sequence[str], metric: str, title: str) -> Plot | None:
    """Bars of a rate; the hover text says how much of the calibrated machine that is."""
    traces: list[dict[str, Any]] = []
    names: dict[str, None] = {}
    for number, run in enumerate(runs):
        found = [record for record in run.records if metric in record.metrics]
        labels = [row_name(record, varying) for record in found]
        names.update(dict.fromkeys(labels))
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": run.name,
                "y": labels,
                "x": [record.metrics[metric].value for record in found],
                "text": [_of_roofline(record) for record in found],
                "textposition": "none",
                "hovertemplate": "%{x:.3g} " + title + "<br>%{text}<extra></extra>",
                "marker": {"color": f"var(--series-{number % 6 + 1})"},
            }
        )
    if not names:
        return None
    layout = row_layout(list(names), len(traces), legend=len(traces) > 1)
    layout["xaxis"] = value_axis(title, logarithmic=False)
    what = "Computed" if metric == "gflops" else "Moved"
    return Plot({"data": traces, "layout": layout}, f"{what} per second, {title}.")


def _of_roofline(record: Record) -> str:
    share = record.metrics.get("roofline")
    return f"{share.value:.0%} of the calibrated machine" if share else "machine not calibrated"


def launch_plot(runs: Sequence[RunView], varying: Sequence[str]) -> Plot | None:
    """One dot per launch, relative to the case's middle launch: what separates a change from luck."""
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
            y.extend([row_name(record, varying)] * len(lows))
        names.update(dict.fromkeys(y))
        marker = {"color": f"var(--series-{number % 6 + 1})", "size": 8, "opacity": 0.75}
        hover = "%{x:+.2f} % from the middle launch<extra></extra>"
        trace = {"type": "scatter", "mode": "markers", "name": run.name, "x": x, "y": y, "marker": marker}
        traces.append(trace | {"hovertemplate": hover})
    if not names:
        return None
    layout = row_layout(list(names), 1, legend=len(traces) > 1)
    layout["xaxis"] = {"side": "top", "ticksuffix": " %", "zeroline": True}
    return Plot(
        {"data": traces, "layout": layout},
        "Every launch of a case (its lower quartile) against the middle one: changes smaller than this spread "
        "cannot be told from luck.",
    )
