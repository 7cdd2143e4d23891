"""The prediction section of the page: predictions of the machine model compared with measurements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

from tessera.report.blocks import Column, Columns, Plot, Section, Table, tabulate
from tessera.report.cells import EMPTY_CELL, make_change_cell, make_value_cell
from tessera.report.figures import format_percent
from tessera.report.naming import CaseNames, name_cases_of_runs
from tessera.report.runs import RunView
from tessera.report.svg import get_series_colour
from tessera.results.record import Metric, Record

# Unit of a metric -> what its predictions are called.
PREDICTION_KINDS = {"s": "predicted times", "images/s": "predicted rates", "B": "predicted byte counts"}


class PredictedMetric(NamedTuple):
    """A metric that was both predicted and measured, with its run and record."""

    run: RunView
    record: Record
    name: str
    predicted: Metric
    measured: Metric

    @property
    def error(self) -> float | None:
        """Measured value / predicted value - 1; None for a prediction of 0."""
        return self.measured.value / self.predicted.value - 1 if self.predicted.value else None


def build_prediction_section(runs: Sequence[RunView]) -> Section | None:
    """Build the section of all metrics that were both predicted and measured; None if there are none."""
    metrics = [
        PredictedMetric(run, record, name, predicted, record.metrics[name])
        for run in runs
        for record in run.records
        for name, predicted in record.predicted.items()
        if name in record.metrics
    ]
    if not metrics:
        return None
    intro = "Predictions of the machine model beside the measured values; the error is measured / predicted - 1."
    intro += "".join(_summarize_errors(metrics))
    return Section(
        "Predicted beside measured", intro, [*_build_plots(metrics), _build_table(metrics, name_cases_of_runs(runs))]
    )


def _summarize_errors(metrics: Sequence[PredictedMetric]) -> Iterator[str]:
    """Yield a sentence per kind of prediction, because counted bytes can be exact and times cannot."""
    for kind, words in PREDICTION_KINDS.items():
        errors = [abs(m.error) for m in metrics if m.error is not None and m.measured.unit == kind]
        exact = sum(error == 0 for error in errors)
        if kind == "B" and errors:
            yield f" {exact:,} of {len(errors):,} {words} are exact."
        elif errors:
            yield f" Half of the {len(errors):,} {words} are within {_format_error(median(errors))}."


def _format_error(error: float) -> str:
    return format_percent(error) if error <= 1 else f"a factor of {1 + error:.1f}"


def _build_table(metrics: Sequence[PredictedMetric], names: CaseNames) -> Table:
    columns: Columns[PredictedMetric] = {
        "Case": lambda metric: names[metric.record.case.key].cell,
        Column("Feature", quick=True): lambda metric: metric.record.case.feature,
        Column("Run", quick=True): lambda metric: metric.run.name,
        Column("Metric", quick=True): lambda metric: metric.name,
        Column("Predicted", "number"): lambda metric: make_value_cell(metric.predicted.value, metric.predicted.unit),
        Column("Measured", "number"): lambda metric: make_value_cell(metric.measured.value, metric.measured.unit),
        Column("Error", "number", hint="measured / predicted - 1"): lambda metric: (
            EMPTY_CELL if metric.error is None else make_change_cell(metric.error)
        ),
    }
    return tabulate(columns, metrics, "Every prediction")


def _build_plots(metrics: Sequence[PredictedMetric]) -> list[Plot]:
    plots = []
    for unit in dict.fromkeys(metric.measured.unit for metric in metrics):
        points = [m for m in metrics if m.measured.unit == unit and m.predicted.value > 0 and m.measured.value > 0]
        if len(points) > 1:
            plots.append(_plot_predictions(points, unit))
    return plots


def _plot_predictions(points: Sequence[PredictedMetric], unit: str) -> Plot:
    """Plot measured over predicted values, one dot per metric; dots above the diagonal exceed the prediction."""
    values = [value for point in points for value in (point.predicted.value, point.measured.value)]
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
    features: dict[str, list[PredictedMetric]] = {}
    for point in points:
        features.setdefault(point.record.case.feature, []).append(point)
    dots = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": feature,
            "x": [point.predicted.value for point in own],
            "y": [point.measured.value for point in own],
            "text": [f"{point.record.case.key}, {point.name}" for point in own],
            "hovertemplate": "%{text}<br>predicted %{x:.3~s}, measured %{y:.3~s}<extra></extra>",
            "marker": {"size": 8, "opacity": 0.8, "color": get_series_colour(number)},
        }
        for number, (feature, own) in enumerate(features.items())
    ]
    axis = {"type": "log", "exponentformat": "SI", "minexponent": 0, "ticksuffix": unit, "dtick": 1}
    layout = {
        "height": 440,
        "xaxis": {**axis, "title": {"text": "predicted"}},
        "yaxis": {**axis, "title": {"text": "measured"}},
    }
    caption = "Each dot is one prediction; dots above the dotted line measured more than was predicted."
    return Plot({"data": [right, *dots], "layout": layout}, caption)
