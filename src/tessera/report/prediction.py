"""Predicted beside measured: how far the machine model is from what was seen."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from tessera.report.blocks import Cell, Column, Heading, Plot, Row, Section, Table
from tessera.report.cells import figure
from tessera.report.figures import format_percent
from tessera.report.measured import predictions
from tessera.report.naming import Names, short_names
from tessera.report.runs import RunView
from tessera.results.record import Metric, Record

Pair = tuple[RunView, Record, str, Metric, Metric]


def prediction_section(runs: Sequence[RunView]) -> Section | None:
    """Every figure that has both a prediction and a measurement; None where there is none."""
    pairs = [(run, record, *found) for run in runs for record in run.records for found in predictions(record)]
    if not pairs:
        return None
    errors = [abs(error) for *_, expected, seen in pairs if (error := _error(expected, seen)) is not None]
    intro = "What the machine model expected and what was measured; the error is measured / predicted - 1."
    if errors:
        intro += f" Half of the {len(errors):,} predictions are within {median(errors):.0%}."
    return Section("Predicted beside measured", intro, [*_plots(pairs), _table(pairs, short_names(runs))])


def _error(expected: Metric, seen: Metric) -> float | None:
    return seen.value / expected.value - 1 if expected.value else None


def _table(pairs: Sequence[Pair], names: Names) -> Table:
    columns: list[Heading] = [
        "Case",
        Column("Feature", quick=True),
        Column("Run", quick=True),
        Column("Figure", quick=True),
        Column("Predicted", "number"),
        Column("Measured", "number"),
        Column("Error", "number", hint="measured over predicted, less one"),
    ]
    rows: list[Row] = []
    for run, record, name, expected, seen in pairs:
        error = _error(expected, seen)
        far = Cell("") if error is None else Cell(format_percent(error, signed=True), error)
        values = figure(expected.value, expected.unit), figure(seen.value, seen.unit)
        rows.append([names[record.case.key].cell, record.case.feature, run.name, name, *values, far])
    return Table(columns, rows, "Every prediction")


def _plots(pairs: Sequence[Pair]) -> list[Plot]:
    plots = []
    for unit in dict.fromkeys(seen.unit for *_, seen in pairs):
        points = [p for p in pairs if p[4].unit == unit and p[3].value > 0 and p[4].value > 0]
        if len(points) > 1:
            plots.append(_plot(points, unit))
    return plots


def _plot(points: Sequence[Pair], unit: str) -> Plot:
    """One dot per prediction around the line on which the model is right; above it the case took more."""
    values = [value for *_, expected, seen in points for value in (expected.value, seen.value)]
    ends = [min(values), max(values)]
    right = {
        "type": "scatter",
        "mode": "lines",
        "x": ends,
        "y": ends,
        "line": {"color": "var(--muted)", "dash": "dot", "width": 1},
        "name": "as predicted",
        "hoverinfo": "skip",
    }
    dots = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": feature,
            "x": [p[3].value for p in points if p[1].case.feature == feature],
            "y": [p[4].value for p in points if p[1].case.feature == feature],
            "text": [f"{p[1].case.key}, {p[2]}" for p in points if p[1].case.feature == feature],
            "hovertemplate": "%{text}<br>predicted %{x:.3~s}, measured %{y:.3~s}<extra></extra>",
            "marker": {"size": 8, "opacity": 0.8, "color": f"var(--series-{number % 6 + 1})"},
        }
        for number, feature in enumerate(dict.fromkeys(p[1].case.feature for p in points))
    ]
    axis = {"type": "log", "exponentformat": "SI", "minexponent": 0, "ticksuffix": unit, "dtick": 1}
    layout = {
        "height": 440,
        "xaxis": {**axis, "title": {"text": "predicted"}},
        "yaxis": {**axis, "title": {"text": "measured"}},
    }
    caption = "Each dot is one prediction; on the dotted line the model is right, above it more was measured."
    return Plot({"data": [right, *dots], "layout": layout}, caption)
