"""Plots of named rows, whose names stand above their marks: long names cost no width, even on a phone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# Pixels: of one mark, of a name with its space, of the axis on top, of the legend above it.
MARK, NAME, AXIS, LEGEND = 13, 28, 36, 28


def row_layout(names: Sequence[str], marks: int = 1, *, legend: bool = False) -> dict[str, Any]:
    """The layout of a plot with a row for each name, from the top, and `marks` below one another in each."""
    top = AXIS + LEGEND * legend
    return {
        "height": top + len(names) * (MARK * marks + NAME),
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
        # Names are notes: labels of an axis would either take a margin or push the other axis's labels aside.
        "annotations": [
            {
                "text": name,
                "y": place,
                "yshift": MARK * marks / 2 + 8,
                "xref": "paper",
                "x": 0,
                "xanchor": "left",
                "showarrow": False,
                "font": {"size": 12},
            }
            for place, name in enumerate(names)
        ],
    }


def value_axis(unit: str, *, logarithmic: bool) -> dict[str, Any]:
    """The axis on top, with prefixes for the powers of a thousand."""
    axis = {
        "side": "top",
        "tickangle": 0,
        "exponentformat": "SI",
        "minexponent": 0,
        "ticksuffix": unit,
        # A long unit on every tick would not fit a phone.
        "showticksuffix": "all" if len(unit) <= 3 else "last",
    }
    return axis | ({"type": "log", "dtick": 1} if logarithmic else {"rangemode": "tozero"})
