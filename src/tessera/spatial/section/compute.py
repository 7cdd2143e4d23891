"""Report section of split convolutions: the share of the exchange that overlap hides, and the cost of splitting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.report.blocks import Block, Cell, Column, Heading, Plot, Row, Section, Table
from tessera.report.cells import EMPTY_CELL, make_metric_cell, make_share_cell, make_value_cell
from tessera.report.figures import format_seconds
from tessera.report.measured import INTERVAL_HINT, summarize_record
from tessera.report.naming import CaseNames, name_cases
from tessera.report.plots import make_row_layout, make_value_axis
from tessera.results.metrics import read_share
from tessera.results.record import Case, Record


def build_compute_section(records: Sequence[Record]) -> Section | None:
    """Return the section of all measured convolutions; None if there are none."""
    measured = [r for r in records if r.case.name == "compute" and r.status == "ok" and "time" in r.metrics]
    if not measured:
        return None
    intro = (
        "`sequential` exchanges first and then computes. The hidden share is the part of the exchange that an overlap "
        "saves compared with that, net of its own overhead; a negative share means that overlapping is slower than "
        "running in sequence. The share is not applicable if the exchange is below the noise of the measurement. "
        "`efficiency` is the time of the unsplit convolution, in one process with as many threads as the ranks have "
        "cores, divided by the time of the split convolution."
    )
    names = name_cases([drop_overlap(record.case) for record in measured])
    blocks: list[Block] = [plot for plot in (_plot_hidden_shares(measured, names),) if plot]
    return Section("Convolution with its exchange", intro, [*blocks, _build_table(measured, names)])


def drop_overlap(case: Case) -> Case:
    """Return the case without its `overlap` parameter, which identifies a row of the plot."""
    params = {name: value for name, value in case.params.items() if name != "overlap"}
    return Case(feature=case.feature, name=case.name, params=params)


def _plot_hidden_shares(records: Sequence[Record], names: CaseNames) -> Plot | None:
    """Plot the hidden share of the exchange: a row per problem, with a bar for each overlap mode."""
    shares = [(record, read_share(record.metrics, "hidden")) for record in records]
    resolved_records = [record for record, hidden in shares if hidden and hidden.resolved]
    if not resolved_records:
        return None
    labels = {record.case.key: names[drop_overlap(record.case).key].words for record in resolved_records}
    overlaps = list(dict.fromkeys(str(record.case.params.get("overlap")) for record in resolved_records))
    traces: list[dict[str, Any]] = []
    for number, overlap in enumerate(overlaps):
        overlap_records = [record for record in resolved_records if str(record.case.params.get("overlap")) == overlap]
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": overlap,
                "y": [labels[record.case.key] for record in overlap_records],
                "x": [100 * record.metrics["hidden"].value for record in overlap_records],
                "text": [_format_times(record) for record in overlap_records],
                "textposition": "none",
                "hovertemplate": "%{x:.0f} % hidden<br>%{text}<extra></extra>",
                "marker": {"color": f"var(--series-{number % 6 + 1})"},
                "error_x": {
                    "type": "data",
                    "symmetric": False,
                    "array": [
                        100 * (_get_bound(record, "high") - record.metrics["hidden"].value)
                        for record in overlap_records
                    ],
                    "arrayminus": [
                        100 * (record.metrics["hidden"].value - _get_bound(record, "low")) for record in overlap_records
                    ],
                    "thickness": 1.2,
                    "width": 3,
                    "color": "var(--ink)",
                },
            }
        )
    layout = make_row_layout(list(dict.fromkeys(labels.values())), len(traces), legend=len(traces) > 1)
    layout["xaxis"] = make_value_axis(" %", logarithmic=False) | {"zeroline": True}
    return Plot({"data": traces, "layout": layout}, "The share of the exchange that each overlap hides.")


def _get_bound(record: Record, end: str) -> float:
    """Return a bound of the hidden share's confidence interval; the share itself if there is no interval."""
    return record.metrics.get(f"hidden_{end}", record.metrics["hidden"]).value


def _format_times(record: Record) -> str:
    return ", ".join(
        f"{name} {format_seconds(record.metrics[name].value)}"
        for name in ("time", "sequential", "exchange", "convolution")
        if name in record.metrics
    )


def _build_table(records: Sequence[Record], names: CaseNames) -> Table:
    columns: list[Heading] = [
        "Case",
        Column("Overlap", quick=True),
        Column("Transport", quick=True),
        Column("Layout", quick=True),
        Column("Time", "number", hint="with the exchange, in this overlap mode"),
        Column("Interval", "number", hint=INTERVAL_HINT),
        Column("Exchange", "number", hint="alone"),
        Column("Convolution", "number", hint="alone, on a complete frame"),
        Column("Sequential", "number", hint="the exchange, then the convolution"),
        Column("Hidden", "number", hint="share of the exchange, net of the overhead of overlapping"),
        Column("Between", "number", hint="width of the 95 % interval of the hidden share"),
        Column("Unsplit", "number", hint="in one process, on the same cores"),
        Column("Efficiency", "number", hint="unsplit time divided by split time"),
        Column("Predicted", "number", hint="by the calibrated machine"),
    ]
    rows = [_build_row(record, names[drop_overlap(record.case).key].cell) for record in records]
    return Table(columns, rows, "Every convolution")


def _build_row(record: Record, name: Cell) -> Row:
    metrics, summary = record.metrics, summarize_record(record)
    times = {key: make_value_cell(m.value, "s") for key, m in metrics.items() if m.unit == "s"}
    interval = (
        make_share_cell(_get_bound(record, "high") - _get_bound(record, "low"))
        if "hidden_low" in metrics
        else EMPTY_CELL
    )
    predicted = record.predicted.get("time")
    return [
        name,
        str(record.case.params.get("overlap", "")),
        str(record.chosen.get("transport", "")),
        str(record.chosen.get("layout", "")),
        times["time"],
        make_share_cell(summary.relative if summary else None, "± "),
        times.get("exchange", EMPTY_CELL),
        times.get("convolution", EMPTY_CELL),
        times.get("sequential", EMPTY_CELL),
        make_metric_cell(record, "hidden"),
        interval,
        times.get("uncut", EMPTY_CELL),
        make_metric_cell(record, "efficiency"),
        make_value_cell(predicted.value, "s") if predicted else EMPTY_CELL,
    ]
