"""The plot of what changed between two runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.report.blocks import Plot
from tessera.report.naming import Names
from tessera.report.rows import row_layout
from tessera.results.compare import Compared

# The largest changes for the worse and for the better, together so many.
MOST_ROWS = 40
COLOURS = {"slower": "var(--bad)", "faster": "var(--good)"}


def change_plot(changed: Sequence[Compared], names: Names, threshold: float) -> Plot:
    """The changed cases with their intervals, beside the band of changes that do not matter."""
    shown = sorted(changed, key=lambda case: case.judgement.ratio, reverse=True)
    if len(shown) > MOST_ROWS:
        shown = [*shown[: MOST_ROWS // 2], *shown[-MOST_ROWS // 2 :]]
    band = {
        "type": "rect",
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "x0": 1 / (1 + threshold) - 1,
        "x1": threshold,
        "fillcolor": "var(--muted)",
        "opacity": 0.15,
        "line": {"width": 0},
    }
    layout = row_layout([str(names[case.key]) for case in shown], legend=True) | {
        "shapes": [band],
        "scattermode": "overlay",
        "xaxis": {"side": "top", "tickformat": "+.0~%", "zeroline": True},
    }
    traces = [_trace(verdict, [case for case in shown if case.verdict == verdict], names) for verdict in COLOURS]
    caption = "What changed against the baseline, with its interval; changes within the grey band do not matter."
    if len(shown) < len(changed):
        caption += f" Shown are the {MOST_ROWS} largest of {len(changed):,} changes."
    return Plot({"data": traces, "layout": layout}, caption)


def _trace(verdict: str, cases: Sequence[Compared], names: Names) -> dict[str, Any]:
    found = [case.judgement for case in cases]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": verdict,
        "x": [f.ratio - 1 for f in found],
        "y": [str(names[case.key]) for case in cases],
        "hovertext": [f.why for f in found],
        "hovertemplate": "%{y}<br>%{x:+.1%}: %{hovertext}<extra></extra>",
        "marker": {"size": 10, "color": COLOURS[verdict]},
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [f.high - f.ratio if f.high is not None else 0.0 for f in found],
            "arrayminus": [f.ratio - f.low if f.low is not None else 0.0 for f in found],
            "thickness": 1.4,
            "width": 4,
        },
    }
