"""Report section of exchanges: time by bytes received per rank, compared with a plain copy of as many bytes."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from tessera.report.blocks import Cell, Column, Heading, Plot, Row, Section, Table
from tessera.report.cells import EMPTY_CELL, make_share_cell, make_value_cell
from tessera.report.figures import format_bytes, format_seconds
from tessera.report.measured import INTERVAL_HINT, summarize_record
from tessera.report.naming import name_cases
from tessera.results.record import Record

AXIS = {"type": "log", "exponentformat": "SI", "minexponent": 0, "dtick": 1}
MAX_TICKS = 6
Points = list[tuple[float, float]]


def build_exchange_section(records: Sequence[Record]) -> Section | None:
    """Return the section of all exchanges that move data; None if there are none."""
    measured = [r for r in records if r.case.name == "exchange" and r.status == "ok" and "time" in r.metrics]
    moving = [record for record in measured if "bytes" in record.metrics and record.metrics["bytes"].value]
    if not moving:
        return None
    intro = (
        "The time until every rank has its halo and may overwrite its own borders. The baseline is a plain copy of as "
        "many bytes by all ranks at once: an exchange through memory cannot be faster for long."
    )
    return Section("Exchange", intro, [_draw_plot(moving), _build_table(moving)])


def name_series(record: Record) -> str:
    """Return the name of a line in the plot: transport, ranks, split, and whether gradients are exchanged."""
    params = record.case.params
    words = [str(record.chosen.get("transport", params.get("transport", "")))]
    words.append(f"{params.get('num_spatial_parts', '?')} ranks {params.get('slice_method', '')}".rstrip())
    if params.get("backward"):
        words.append("with adjoint")
    return ", ".join(words)


def _draw_plot(records: Sequence[Record]) -> Plot:
    traces: list[dict[str, Any]] = []
    names = dict.fromkeys(name_series(record) for record in records)
    for number, name in enumerate(names):
        series_records = sorted(
            (record for record in records if name_series(record) == name), key=lambda r: r.metrics["bytes"].value
        )
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": name,
                "x": [record.metrics["bytes"].value for record in series_records],
                "y": [record.metrics["time"].value for record in series_records],
                "text": [
                    f"{record.case.key}: {format_seconds(record.metrics['time'].value)}" for record in series_records
                ],
                "hovertemplate": "%{text}<extra></extra>",
                "line": {"width": 1.4, "color": f"var(--series-{number % 6 + 1})"},
                "marker": {"size": 8, "color": f"var(--series-{number % 6 + 1})"},
            }
        )
    limits = (
        ("a plain copy, measured", _compute_curve(records, lambda r: r.metrics.get("copy")), "dot"),
        ("a plain copy, calibrated", _compute_curve(records, lambda r: r.predicted.get("copy")), "dash"),
    )
    for name, points, dash in limits:
        if points:
            line = {"width": 1.2, "color": "var(--muted)", "dash": dash}
            ends = {"x": [x for x, _ in points], "y": [y for _, y in points], "mode": "lines", "hoverinfo": "skip"}
            traces.append({"type": "scatter", "name": name, "line": line} | ends)
    sizes = sorted({record.metrics["bytes"].value for record in records})
    marked = sizes[:: -(-len(sizes) // MAX_TICKS)]  # axis ticks at the measured sizes, which are seldom powers of ten
    ticks = {"tickvals": marked, "ticktext": [format_bytes(size) for size in marked]}
    layout = {
        "height": 360 + 20 * len(traces),
        "legend": {"orientation": "v", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 12}},
        "margin": {"t": 20 * len(traces) + 16},
        "xaxis": {"type": "log", "tickangle": 0, "title": {"text": "received by the busiest rank"}} | ticks,
        "yaxis": AXIS | {"ticksuffix": "s"},
    }
    return Plot({"data": traces, "layout": layout}, "Time of one exchange over its bytes; logarithmic axes.")


def _compute_curve(records: Sequence[Record], of: Callable[[Record], Any]) -> Points:
    """Return the points of a line: the numbers of bytes, and the median value for each."""
    values_by_size: dict[float, list[float]] = {}
    for record in records:
        metric = of(record)
        if metric is not None and metric.value > 0:
            values_by_size.setdefault(record.metrics["bytes"].value, []).append(metric.value)
    return [(count, statistics.median(values)) for count, values in sorted(values_by_size.items())]


def _build_table(records: Sequence[Record]) -> Table:
    names = name_cases([record.case for record in records])
    columns: list[Heading] = [
        "Case",
        Column("Transport", quick=True),
        Column("Bytes", "number", hint="received by the busiest rank"),
        Column("Neighbours", "number", hint="that the busiest rank receives from"),
        Column("Time", "number"),
        Column("Interval", "number", hint=INTERVAL_HINT),
        Column("99 %", "number", hint="99 % of the iterations are at least as fast"),
        Column("Copy", "number", hint="a plain copy of as many bytes by every rank, in the same rounds"),
        Column("Of a copy", "number", hint="time divided by the time of the plain copy"),
        Column("Rate", "number"),
        Column("Predicted", "number", hint="by the calibrated machine"),
    ]
    return Table(columns, [_build_row(record, names[record.case.key].cell) for record in records], "Every exchange")


def _build_row(record: Record, name: Cell) -> Row:
    metrics, summary = record.metrics, summarize_record(record)
    copy, rate, predicted = metrics.get("copy"), metrics.get("bandwidth"), record.predicted.get("time")
    times = metrics["time"].value / copy.value if copy and copy.value else None
    peers = round(metrics["neighbours"].value) if "neighbours" in metrics else 0
    return [
        name,
        str(record.chosen.get("transport", "")),
        make_value_cell(metrics["bytes"].value, "B"),
        Cell(f"{peers}", peers),
        make_value_cell(metrics["time"].value, "s"),
        make_share_cell(summary.relative if summary else None, "± "),
        make_value_cell(metrics["p99"].value, "s") if "p99" in metrics else EMPTY_CELL,
        make_value_cell(copy.value, "s") if copy else EMPTY_CELL,
        Cell(f"{times:.2f}x", times) if times is not None else EMPTY_CELL,
        make_value_cell(rate.value, rate.unit) if rate else EMPTY_CELL,
        make_value_cell(predicted.value, "s") if predicted else EMPTY_CELL,
    ]
