"""Convolutions with their exchange: how much of it each way to overlap them hides, and what cutting costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.report.blocks import Block, Cell, Column, Heading, Plot, Row, Section, Table
from tessera.report.cells import NONE, figure, share
from tessera.report.figures import format_seconds
from tessera.report.measured import INTERVAL_HINT, measured
from tessera.report.naming import Names, case_names
from tessera.report.rows import row_layout, value_axis
from tessera.results.record import Case, Record


def compute_section(records: Sequence[Record]) -> Section | None:
    """All convolutions that were measured with their exchange; None without one."""
    found = [r for r in records if r.case.name == "compute" and r.status == "ok" and "time" in r.metrics]
    if not found:
        return None
    intro = (
        "`sequential` exchanges first and computes then. What an overlap saves of that is the part of the exchange "
        "that it hides, net of what it costs itself: below zero it costs more than it hides. `efficiency` is the time "
        "of the uncut convolution in one process with as many threads as the ranks have cores, over that of the cut "
        "one."
    )
    names = case_names([without_overlap(record.case) for record in found])
    blocks: list[Block] = [plot for plot in (_hidden_plot(found, names),) if plot]
    return Section("Convolution with its exchange", intro, [*blocks, _table(found, names)])


def without_overlap(case: Case) -> Case:
    """The same case whatever its overlap: a row of the plot."""
    kept = {name: value for name, value in case.params.items() if name != "overlap"}
    return Case(feature=case.feature, name=case.name, params=kept)


def _hidden_plot(records: Sequence[Record], names: Names) -> Plot | None:
    """A bar for each overlap of a problem."""
    found = [record for record in records if "hidden" in record.metrics]
    if not found:
        return None
    labels = {record.case.key: names[without_overlap(record.case).key].words for record in found}
    overlaps = list(dict.fromkeys(str(record.case.params.get("overlap")) for record in found))
    traces: list[dict[str, Any]] = []
    for number, overlap in enumerate(overlaps):
        own = [record for record in found if str(record.case.params.get("overlap")) == overlap]
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": overlap,
                "y": [labels[record.case.key] for record in own],
                "x": [100 * record.metrics["hidden"].value for record in own],
                "text": [_in_words(record) for record in own],
                "textposition": "none",
                "hovertemplate": "%{x:.0f} % hidden<br>%{text}<extra></extra>",
                "marker": {"color": f"var(--series-{number % 6 + 1})"},
                "error_x": {
                    "type": "data",
                    "symmetric": False,
                    "array": [100 * (_bound(record, "high") - record.metrics["hidden"].value) for record in own],
                    "arrayminus": [100 * (record.metrics["hidden"].value - _bound(record, "low")) for record in own],
                    "thickness": 1.2,
                    "width": 3,
                    "color": "var(--ink)",
                },
            }
        )
    layout = row_layout(list(dict.fromkeys(labels.values())), len(traces), legend=len(traces) > 1)
    layout["xaxis"] = value_axis(" %", logarithmic=False) | {"zeroline": True}
    return Plot({"data": traces, "layout": layout}, "The part of the exchange that each overlap hides.")


def _bound(record: Record, end: str) -> float:
    """Of the hidden part's interval; where there is none, the part itself."""
    return record.metrics.get(f"hidden_{end}", record.metrics["hidden"]).value


def _in_words(record: Record) -> str:
    return ", ".join(
        f"{name} {format_seconds(record.metrics[name].value)}"
        for name in ("time", "sequential", "exchange", "convolution")
        if name in record.metrics
    )


def _table(records: Sequence[Record], names: Names) -> Table:
    columns: list[Heading] = [
        "Case",
        Column("Overlap", quick=True),
        Column("Transport", quick=True),
        Column("Layout", quick=True),
        Column("Time", "number", hint="with the exchange, overlapped as said"),
        Column("Interval", "number", hint=INTERVAL_HINT),
        Column("Exchange", "number", hint="alone"),
        Column("Convolution", "number", hint="alone, with everything in place"),
        Column("Sequential", "number", hint="one after the other"),
        Column("Hidden", "number", hint="of the exchange, net of what hiding it costs"),
        Column("Between", "number", hint="the width of its 95 % interval"),
        Column("Uncut", "number", hint="in one process, on the same cores"),
        Column("Efficiency", "number", hint="uncut over cut"),
        Column("Predicted", "number", hint="by the calibrated machine"),
    ]
    rows = [_row(record, names[without_overlap(record.case).key].cell) for record in records]
    return Table(columns, rows, "Every convolution")


def _row(record: Record, name: Cell) -> Row:
    metrics, found = record.metrics, measured(record)
    times = {key: figure(m.value, "s") for key, m in metrics.items() if m.unit == "s"}
    shares = {key: share(metrics[key].value) for key in ("hidden", "efficiency") if key in metrics}
    known = share(_bound(record, "high") - _bound(record, "low")) if "hidden_low" in metrics else NONE
    predicted = record.predicted.get("time")
    return [
        name,
        str(record.case.params.get("overlap", "")),
        str(record.conditions.get("transport", "")),
        str(record.conditions.get("layout", "")),
        times["time"],
        share(found.relative if found else None, "± "),
        times.get("exchange", NONE),
        times.get("convolution", NONE),
        times.get("sequential", NONE),
        shares.get("hidden", NONE),
        known,
        times.get("uncut", NONE),
        shares.get("efficiency", NONE),
        figure(predicted.value, "s") if predicted else NONE,
    ]
