"""Exchanges: their time over the bytes that a rank receives, beside a plain copy of as many bytes."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from tessera.report.blocks import Cell, Column, Heading, Plot, Row, Section, Table
from tessera.report.cells import NONE, figure, share
from tessera.report.figures import format_bytes, format_seconds
from tessera.report.measured import INTERVAL_HINT, measured
from tessera.report.naming import case_names
from tessera.results.record import Record

AXIS = {"type": "log", "exponentformat": "SI", "minexponent": 0, "dtick": 1}
MOST_TICKS = 6
Points = list[tuple[float, float]]


def exchange_section(records: Sequence[Record]) -> Section | None:
    """All exchanges that moved something; None without one."""
    found = [r for r in records if r.case.name == "exchange" and r.status == "ok" and "time" in r.metrics]
    moving = [record for record in found if "bytes" in record.metrics and record.metrics["bytes"].value]
    if not moving:
        return None
    intro = (
        "Until every rank has its borders and may write its own again. A plain copy of as many bytes, by all ranks at "
        "once, is the limit: no exchange through memory can be faster for long."
    )
    return Section("Exchange", intro, [_plot(moving), _table(moving)])


def series_name(record: Record) -> str:
    """What tells lines apart: the transport, the ranks and their cut, and whether gradients travel as well."""
    params = record.case.params
    words = [str(record.conditions.get("transport", params.get("transport", "")))]
    words.append(f"{params.get('num_spatial_parts', '?')} ranks {params.get('slice_method', '')}".rstrip())
    if params.get("backward"):
        words.append("and back")
    return ", ".join(words)


def _plot(records: Sequence[Record]) -> Plot:
    traces: list[dict[str, Any]] = []
    names = dict.fromkeys(series_name(record) for record in records)
    for number, name in enumerate(names):
        own = sorted(
            (record for record in records if series_name(record) == name), key=lambda r: r.metrics["bytes"].value
        )
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": name,
                "x": [record.metrics["bytes"].value for record in own],
                "y": [record.metrics["time"].value for record in own],
                "text": [f"{record.case.key}: {format_seconds(record.metrics['time'].value)}" for record in own],
                "hovertemplate": "%{text}<extra></extra>",
                "line": {"width": 1.4, "color": f"var(--series-{number % 6 + 1})"},
                "marker": {"size": 8, "color": f"var(--series-{number % 6 + 1})"},
            }
        )
    limits = (
        ("a plain copy, measured", _curve(records, lambda r: r.metrics.get("copy")), "dot"),
        ("a plain copy, calibrated", _curve(records, lambda r: r.predicted.get("copy")), "dash"),
    )
    for name, points, dash in limits:
        if points:
            line = {"width": 1.2, "color": "var(--muted)", "dash": dash}
            ends = {"x": [x for x, _ in points], "y": [y for _, y in points], "mode": "lines", "hoverinfo": "skip"}
            traces.append({"type": "scatter", "name": name, "line": line} | ends)
    sizes = sorted({record.metrics["bytes"].value for record in records})
    marked = sizes[:: -(-len(sizes) // MOST_TICKS)]  # the sizes themselves: they seldom are powers of ten
    ticks = {"tickvals": marked, "ticktext": [format_bytes(size) for size in marked]}
    layout = {
        "height": 360 + 20 * len(traces),
        "legend": {"orientation": "v", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 12}},
        "margin": {"t": 20 * len(traces) + 16},
        "xaxis": {"type": "log", "tickangle": 0, "title": {"text": "received by the busiest rank"}} | ticks,
        "yaxis": AXIS | {"ticksuffix": "s"},
    }
    return Plot({"data": traces, "layout": layout}, "Time of one exchange over its bytes; logarithmic axes.")


def _curve(records: Sequence[Record], of: Callable[[Record], Any]) -> Points:
    """One value per number of bytes: the middle one of those that were found."""
    found: dict[float, list[float]] = {}
    for record in records:
        metric = of(record)
        if metric is not None and metric.value > 0:
            found.setdefault(record.metrics["bytes"].value, []).append(metric.value)
    return [(count, statistics.median(values)) for count, values in sorted(found.items())]


def _table(records: Sequence[Record]) -> Table:
    names = case_names([record.case for record in records])
    columns: list[Heading] = [
        "Case",
        Column("Transport", quick=True),
        Column("Bytes", "number", hint="that the busiest rank receives"),
        Column("Neighbours", "number", hint="that it receives them from"),
        Column("Time", "number"),
        Column("Interval", "number", hint=INTERVAL_HINT),
        Column("99 %", "number", hint="of the iterations are no slower"),
        Column("Copy", "number", hint="a plain copy of as many bytes by every rank, in the same rounds"),
        Column("Of a copy", "number", hint="times as long as the plain copy"),
        Column("Rate", "number"),
        Column("Predicted", "number", hint="by the calibrated machine"),
    ]
    return Table(columns, [_row(record, names[record.case.key].cell) for record in records], "Every exchange")


def _row(record: Record, name: Cell) -> Row:
    metrics, found = record.metrics, measured(record)
    copy, rate, predicted = metrics.get("copy"), metrics.get("bandwidth"), record.predicted.get("time")
    times = metrics["time"].value / copy.value if copy and copy.value else None
    peers = round(metrics["neighbours"].value) if "neighbours" in metrics else 0
    return [
        name,
        str(record.conditions.get("transport", "")),
        figure(metrics["bytes"].value, "B"),
        Cell(f"{peers}", peers),
        figure(metrics["time"].value, "s"),
        share(found.relative if found else None, "± "),
        figure(metrics["p99"].value, "s") if "p99" in metrics else NONE,
        figure(copy.value, "s") if copy else NONE,
        Cell(f"{times:.2f}x", times) if times is not None else NONE,
        figure(rate.value, rate.unit) if rate else NONE,
        figure(predicted.value, "s") if predicted else NONE,
    ]
