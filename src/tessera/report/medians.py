"""Plots of medians with their intervals: bars for a few cases of like size, dots for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.report.blocks import Plot
from tessera.report.figures import format_value
from tessera.report.measured import Measured, measured
from tessera.report.rows import row_layout, value_axis
from tessera.report.runs import RunView
from tessera.results.record import Record

# Above this number of cases, those of one name share a row.
MOST_ROWS = 30
# Bars start at zero; values further apart than this are dots on a logarithmic axis.
BAR_RANGE = 20.0

Found = list[tuple[Record, Measured]]


def median_plots(runs: Sequence[RunView], varying: Sequence[str]) -> list[Plot]:
    """One plot for each unit among the records; `varying` names the parameters that tell the cases apart."""
    found = {run.name: _figures(run) for run in runs}
    units = dict.fromkeys(record.unit for pairs in found.values() for record, _ in pairs)
    return [
        _plot({name: [p for p in pairs if p[0].unit == unit] for name, pairs in found.items()}, unit, varying)
        for unit in units
    ]


def _figures(run: RunView) -> Found:
    return [(r, found) for r in run.records if r.status == "ok" and (found := measured(r))]


def _plot(found: dict[str, Found], unit: str, varying: Sequence[str]) -> Plot:
    records = [record for pairs in found.values() for record, _ in pairs]
    crowded = len({row_name(record, varying) for record in records}) > MOST_ROWS
    if crowded:
        varying = ()
    labels = list(dict.fromkeys(row_name(record, varying) for record in records))
    medians = [m.median for pairs in found.values() for _, m in pairs]
    positive = min(medians) > 0
    bars = not crowded and positive and max(medians) < BAR_RANGE * min(medians)
    traces = [
        _trace(name, pairs, [row_name(r, varying) for r, _ in pairs], f"var(--series-{n % 6 + 1})", bars)
        for n, (name, pairs) in enumerate(found.items())
        if pairs
    ]
    logarithmic = positive and not bars
    layout = row_layout(labels, len(traces), legend=len(traces) > 1)
    layout["xaxis"] = value_axis(unit, logarithmic=logarithmic)
    what = "Each dot is the median of a case" if crowded else "The median of each case and how well it is known"
    caption = f"{what}; logarithmic axis." if logarithmic else f"{what}."
    return Plot({"data": traces, "layout": layout}, caption)


def _trace(name: str, pairs: Found, labels: Sequence[str], colour: str, bars: bool) -> dict[str, Any]:
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
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [m.high - m.median if m.high is not None else 0.0 for _, m in pairs],
            "arrayminus": [m.median - m.low if m.low is not None else 0.0 for _, m in pairs],
            "thickness": 1.2,
            "width": 3,
            "color": "var(--ink)" if bars else colour,
        },
    }


def row_name(record: Record, varying: Sequence[str]) -> str:
    """A case in few words: its name and the values that tell it from the others."""
    values = [str(record.case.params[name]) for name in varying if name in record.case.params]
    return " ".join([record.case.name, *values])
