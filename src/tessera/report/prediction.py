"""The prediction section of the page: predictions of the machine model compared with measurements."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from tessera.report.blocks import Cell, Column, Heading, Plot, Row, Section, Table
from tessera.report.cells import make_value_cell
from tessera.report.figures import format_percent
from tessera.report.measured import iter_predictions
from tessera.report.naming import CaseNames, name_cases_of_runs
from tessera.report.runs import RunView
from tessera.results.record import Metric, Record

PredictedMetric = tuple[RunView, Record, str, Metric, Metric]


def build_prediction_section(runs: Sequence[RunView]) -> Section | None:
    """Build the section of all metrics that were both predicted and measured; None if there are none."""
    pairs = [
        (run, record, *prediction) for run in runs for record in run.records for prediction in iter_predictions(record)
    ]
    if not pairs:
        return None
    errors = [
        abs(error)
        for *_, expected, measured in pairs
        if (error := _compute_relative_error(expected, measured)) is not None
    ]
    intro = "Predictions of the machine model beside the measured values; the error is measured / predicted - 1."
    if errors:
        intro += f" Half of the {len(errors):,} predictions are within {median(errors):.0%}."
    return Section(
        "Predicted beside measured", intro, [*_build_plots(pairs), _build_table(pairs, name_cases_of_runs(runs))]
    )


def _compute_relative_error(expected: Metric, measured: Metric) -> float | None:
    return measured.value / expected.value - 1 if expected.value else None


def _build_table(pairs: Sequence[PredictedMetric], names: CaseNames) -> Table:
    columns: list[Heading] = [
        "Case",
        Column("Feature", quick=True),
        Column("Run", quick=True),
        Column("Metric", quick=True),
        Column("Predicted", "number"),
        Column("Measured", "number"),
        Column("Error", "number", hint="measured / predicted - 1"),
    ]
    rows: list[Row] = []
    for run, record, name, expected, measured in pairs:
        error = _compute_relative_error(expected, measured)
        far = Cell("") if error is None else Cell(format_percent(error, signed=True), error)
        values = make_value_cell(expected.value, expected.unit), make_value_cell(measured.value, measured.unit)
        rows.append([names[record.case.key].cell, record.case.feature, run.name, name, *values, far])
    return Table(columns, rows, "Every prediction")


def _build_plots(pairs: Sequence[PredictedMetric]) -> list[Plot]:
    plots = []
    for unit in dict.fromkeys(measured.unit for *_, measured in pairs):
        points = [p for p in pairs if p[4].unit == unit and p[3].value > 0 and p[4].value > 0]
        if len(points) > 1:
            plots.append(_plot_predictions(points, unit))
    return plots


def _plot_predictions(points: Sequence[PredictedMetric], unit: str) -> Plot:
    """Plot measured over predicted values, one dot per metric; dots above the diagonal exceed the prediction."""
    values = [value for *_, expected, measured in points for value in (expected.value, measured.value)]
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
    caption = "Each dot is one prediction; dots above the dotted line measured more than was predicted."
    return Plot({"data": [right, *dots], "layout": layout}, caption)
