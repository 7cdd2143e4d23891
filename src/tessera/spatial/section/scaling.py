"""Scaling: the same convolution over more and more ranks, measured and as the calibrated machine predicts it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.report.blocks import Cell, Column, Heading, Plot, Row, Section, Table
from tessera.report.cells import NONE, figure, share
from tessera.report.figures import format_percent, format_seconds
from tessera.report.naming import Names, case_names
from tessera.results.record import Case, Record

Cut = tuple[int, str]  # ranks, and how the image is cut over them
MOST_CURVES = 6
AXIS = {"exponentformat": "SI", "minexponent": 0}


def scaling_section(records: Sequence[Record]) -> Section | None:
    """Convolutions that were cut over several numbers of ranks; None without one."""
    found = [r for r in records if r.case.name == "compute" and r.status == "ok" and "time" in r.metrics]
    groups: dict[str, dict[Cut, Record]] = {}
    cases: dict[str, Case] = {}
    for record in found:
        case = whatever_ranks(record.case)
        cases[case.key] = case
        params = record.case.params
        cut = int(params.get("num_spatial_parts", 1)), str(params.get("slice_method", ""))
        groups.setdefault(case.key, {})[cut] = record
    several = {key: dict(sorted(own.items())) for key, own in groups.items() if len({ranks for ranks, _ in own}) > 1}
    if not several:
        return None
    names = case_names([cases[key] for key in several])
    intro = (
        "Strong scaling: one image over more ranks. Where there are more ranks than cores they share them, and no more "
        "is gained; `tessera halo scale` predicts larger machines."
    )
    return Section("Scaling", intro, [_plot(several, names), _table(several, names)])


def whatever_ranks(case: Case) -> Case:
    """The same case on any number of ranks."""
    kept = {k: v for k, v in case.params.items() if k not in ("num_spatial_parts", "slice_method")}
    return Case(feature=case.feature, name=case.name, params=kept)


def fastest(cuts: dict[Cut, Record]) -> dict[int, Record]:
    """By number of ranks the record of the cut that took the least."""
    found: dict[int, Record] = {}
    for (ranks, _), record in cuts.items():
        if ranks not in found or record.metrics["time"].value < found[ranks].metrics["time"].value:
            found[ranks] = record
    return found


def _plot(groups: dict[str, dict[Cut, Record]], names: Names) -> Plot:
    traces: list[dict[str, Any]] = []
    shown = [(key, fastest(own)) for key, own in list(groups.items())[:MOST_CURVES]]
    for number, (key, own) in enumerate(shown):
        colour, name = f"var(--series-{number % 6 + 1})", names[key].words
        measured = [(ranks, record.metrics["time"].value) for ranks, record in own.items()]
        predicted = [(ranks, r.predicted["time"].value) for ranks, r in own.items() if "time" in r.predicted]
        traces.append(_trace(name, measured, {"color": colour, "width": 1.6}, "lines+markers"))
        if predicted:
            traces.append(_trace(f"{name}, predicted", predicted, {"color": colour, "dash": "dot"}, "lines"))
    ranks = sorted({count for _, own in shown for count in own})
    layout = {
        "height": 340 + 20 * len(traces),
        "legend": {"orientation": "v", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 12}},
        "margin": {"t": 20 * len(traces) + 16},
        "xaxis": {"type": "log", "tickvals": ranks, "ticktext": [str(n) for n in ranks], "title": {"text": "ranks"}},
        "yaxis": AXIS | {"ticksuffix": "s", "rangemode": "tozero"},
    }
    caption = "Time over ranks, of the fastest cut of each number: measured, and dotted as predicted."
    return Plot({"data": traces, "layout": layout}, caption)


def _trace(name: str, points: Sequence[tuple[int, float]], line: dict[str, Any], mode: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": mode,
        "name": name,
        "x": [ranks for ranks, _ in points],
        "y": [seconds for _, seconds in points],
        "text": [f"{name}: {ranks} ranks, {format_seconds(seconds)}" for ranks, seconds in points],
        "hovertemplate": "%{text}<extra></extra>",
        "line": line,
    }


def _table(groups: dict[str, dict[Cut, Record]], names: Names) -> Table:
    columns: list[Heading] = [
        "Case",
        Column("Ranks", "number"),
        Column("Cut", quick=True),
        Column("Time", "number"),
        Column("Speed-up", "number", hint="over the fewest ranks, in their fastest cut"),
        Column("Efficiency", "number", hint="against the uncut convolution on the same cores"),
        Column("Predicted", "number", hint="by the calibrated machine"),
        Column("Error", "number", hint="measured over predicted, less one"),
    ]
    rows: list[Row] = []
    for key, own in groups.items():
        base = next(iter(fastest(own).values())).metrics["time"].value
        for (ranks, cut), record in own.items():
            took, expected = record.metrics["time"].value, record.predicted.get("time")
            efficiency = record.metrics.get("efficiency")
            rows.append(
                [
                    names[key].cell,
                    Cell(str(ranks), ranks),
                    cut,
                    figure(took, "s"),
                    Cell(f"{base / took:.2f}x", base / took),
                    share(efficiency.value) if efficiency else NONE,
                    figure(expected.value, "s") if expected else NONE,
                    _error(took, expected.value) if expected and expected.value else NONE,
                ]
            )
    return Table(columns, rows, "Every number of ranks")


def _error(took: float, expected: float) -> Cell:
    far = took / expected - 1
    return Cell(format_percent(far, signed=True), far)
