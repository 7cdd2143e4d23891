"""Report section of scaling: measured and predicted times of a convolution on several numbers of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.report.blocks import Cell, Column, Heading, Plot, Row, Section, Table
from tessera.report.cells import EMPTY_CELL, make_share_cell, make_value_cell
from tessera.report.figures import format_change, format_seconds
from tessera.report.naming import CaseNames, name_cases
from tessera.results.record import Case, Record

RankSplit = tuple[int, str]  # (number of ranks, slice method)
MAX_CURVES = 6
AXIS = {"exponentformat": "SI", "minexponent": 0}


def build_scaling_section(records: Sequence[Record]) -> Section | None:
    """Return the strong-scaling section; None if no convolution was measured with several numbers of ranks."""
    measured = [r for r in records if r.case.name == "compute" and r.status == "ok" and "time" in r.metrics]
    groups: dict[str, dict[RankSplit, Record]] = {}
    cases: dict[str, Case] = {}
    for record in measured:
        case = drop_ranks(record.case)
        cases[case.key] = case
        params = record.case.params
        rank_split = int(params.get("num_spatial_parts", 1)), str(params.get("slice_method", ""))
        groups.setdefault(case.key, {})[rank_split] = record
    scaled_groups = {
        key: dict(sorted(by_split.items()))
        for key, by_split in groups.items()
        if len({ranks for ranks, _ in by_split}) > 1
    }
    if not scaled_groups:
        return None
    names = name_cases([cases[key] for key in scaled_groups])
    intro = (
        "Strong scaling: one image over more ranks. Ranks that outnumber the cores share them and bring no speed-up; "
        "`tessera halo scale` predicts larger machines."
    )
    return Section("Scaling", intro, [_draw_plot(scaled_groups, names), _build_table(scaled_groups, names)])


def drop_ranks(case: Case) -> Case:
    """Return the case without the parameters that describe its split over ranks."""
    params = {k: v for k, v in case.params.items() if k not in ("num_spatial_parts", "slice_method")}
    return Case(feature=case.feature, name=case.name, params=params)


def select_fastest(records: dict[RankSplit, Record]) -> dict[int, Record]:
    """Return the record of the fastest split for each number of ranks."""
    fastest: dict[int, Record] = {}
    for (ranks, _), record in records.items():
        if ranks not in fastest or record.metrics["time"].value < fastest[ranks].metrics["time"].value:
            fastest[ranks] = record
    return fastest


def _draw_plot(groups: dict[str, dict[RankSplit, Record]], names: CaseNames) -> Plot:
    traces: list[dict[str, Any]] = []
    shown = [(key, select_fastest(group)) for key, group in list(groups.items())[:MAX_CURVES]]
    for number, (key, group) in enumerate(shown):
        colour, name = f"var(--series-{number % 6 + 1})", names[key].words
        measured = [(ranks, record.metrics["time"].value) for ranks, record in group.items()]
        predicted = [(ranks, r.predicted["time"].value) for ranks, r in group.items() if "time" in r.predicted]
        traces.append(_make_trace(name, measured, {"color": colour, "width": 1.6}, "lines+markers"))
        if predicted:
            traces.append(_make_trace(f"{name}, predicted", predicted, {"color": colour, "dash": "dot"}, "lines"))
    ranks = sorted({count for _, group in shown for count in group})
    layout = {
        "height": 340 + 20 * len(traces),
        "legend": {"orientation": "v", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 12}},
        "margin": {"t": 20 * len(traces) + 16},
        "xaxis": {"type": "log", "tickvals": ranks, "ticktext": [str(n) for n in ranks], "title": {"text": "ranks"}},
        "yaxis": AXIS | {"ticksuffix": "s", "rangemode": "tozero"},
    }
    caption = "Time over ranks, for the fastest split of each number: measured (solid) and predicted (dotted)."
    return Plot({"data": traces, "layout": layout}, caption)


def _make_trace(name: str, points: Sequence[tuple[int, float]], line: dict[str, Any], mode: str) -> dict[str, Any]:
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


def _build_table(groups: dict[str, dict[RankSplit, Record]], names: CaseNames) -> Table:
    columns: list[Heading] = [
        "Case",
        Column("Ranks", "number"),
        Column("Split", quick=True),
        Column("Time", "number"),
        Column("Speed-up", "number", hint="over the fewest ranks, in their fastest split"),
        Column("Efficiency", "number", hint="compared with the unsplit convolution on the same cores"),
        Column("Predicted", "number", hint="by the calibrated machine"),
        Column("Error", "number", hint="measured divided by predicted, minus one"),
    ]
    rows: list[Row] = []
    for key, group in groups.items():
        base = next(iter(select_fastest(group).values())).metrics["time"].value
        for (ranks, slice_method), record in group.items():
            seconds, expected = record.metrics["time"].value, record.predicted.get("time")
            efficiency = record.metrics.get("efficiency")
            rows.append(
                [
                    names[key].cell,
                    Cell(str(ranks), ranks),
                    slice_method,
                    make_value_cell(seconds, "s"),
                    Cell(f"{base / seconds:.2f}x", base / seconds),
                    make_share_cell(efficiency.value) if efficiency else EMPTY_CELL,
                    make_value_cell(expected.value, "s") if expected else EMPTY_CELL,
                    _make_error_cell(seconds, expected.value) if expected and expected.value else EMPTY_CELL,
                ]
            )
    return Table(columns, rows, "Every number of ranks")


def _make_error_cell(seconds: float, expected: float) -> Cell:
    far = seconds / expected - 1
    return Cell(format_change(far), far)
