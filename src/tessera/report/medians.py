"""Plots of medians with their intervals: bars for a few cases of like size, dots for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.report.blocks import Plot
from tessera.report.cells import format_value
from tessera.report.measured import Measured, measured
from tessera.report.runs import RunView
from tessera.results.record import Record

# More cases than this share a row with the others of their name.
MOST_ROWS = 30
# Bars start at zero; values further apart than this are dots on a logarithmic axis.
BAR_RANGE = 20.0
ROW, FRAME = 34, 90


def median_plots(runs: Sequence[RunView], varying: Sequence[str]) -> list[Plot]:
    """One plot for each unit among the records; `varying` names the parameters that tell the cases apart."""
    found = {
        run.name: [(r, m) for r in run.records if r.status == "ok" and (m := measured(r)) is not None]
        for run in runs
    }
    units = dict.fromkeys(record.unit for pairs in found.values() for record, _ in pairs)
    return [
        _plot({name: [p for p in pairs if p[0].unit == unit] for name, pairs in found.items()}, unit, varying)
        for unit in units
    ]


def _plot(found: dict[str, list[tuple[Record, Measured]]], unit: str, varying: Sequence[str]) -> Plot:
    labels = dict.fromkeys(_label(record, varying) for pairs in found.values() for record, _ in pairs)
    grouped = len(labels) > MOST_ROWS
    if grouped:
        varying = ()
        labels = dict.fromkeys(_label(record, ()) for pairs in found.values() for record, _ in pairs)
    medians = [m.median for pairs in found.values() for _, m in pairs]
    bars = not grouped and min(medians) > 0 and max(medians) < BAR_RANGE * min(medians)
    logarithmic = not bars and min(medians) > 0
    traces = [
        _trace(name, pairs, [_label(r, varying) for r, _ in pairs], f"var(--series-{n % 6 + 1})", bars)
        for n, (name, pairs) in enumerate(found.items())
        if pairs
    ]
    axis: dict[str, Any] = {"exponentformat": "SI", "ticksuffix": unit, "side": "top"}
    axis |= {"type": "log", "dtick": 1} if logarithmic else {"rangemode": "tozero"}
    layout = {
        "height": FRAME + ROW * len(labels) * (1 if not bars else max(1, len(traces))),
        "showlegend": len(found) > 1,
        "bargap": 0.45,
        "xaxis": axis,
        "yaxis": {
            "autorange": "reversed",
            "categoryorder": "array",
            "categoryarray": list(labels),
            "type": "category",
        },
    }
    what = "Each dot is a case" if grouped else "The median of each case with its 95 % interval"
    scale = ", on a logarithmic axis" if logarithmic else ""
    return Plot({"data": traces, "layout": layout}, f"{what}{scale}.")


def _trace(
    name: str, pairs: Sequence[tuple[Record, Measured]], labels: Sequence[str], colour: str, bars: bool
) -> dict[str, Any]:
    above = [m.high - m.median if m.high is not None else 0.0 for _, m in pairs]
    below = [m.median - m.low if m.low is not None else 0.0 for _, m in pairs]
    kind: dict[str, Any] = (
        {"type": "bar", "orientation": "h", "marker": {"color": colour, "cornerradius": 3}}
        if bars
        else {"type": "scatter", "mode": "markers", "marker": {"color": colour, "size": 9, "opacity": 0.75}}
    )
    return kind | {
        "name": name,
        "x": [m.median for _, m in pairs],
        "y": list(labels),
        "text": [f"{r.case.key}: {format_value(m.median, r.unit)}" for r, m in pairs],
        "textposition": "none",
        "hovertemplate": "%{text}<extra></extra>",
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": above,
            "arrayminus": below,
            "thickness": 1.2,
            "width": 3,
            "color": "var(--ink)" if bars else colour,
        },
    }


def _label(record: Record, varying: Sequence[str]) -> str:
    values = [str(record.case.params[name]) for name in varying if name in record.case.params]
    return " ".join([record.case.name, *values])
