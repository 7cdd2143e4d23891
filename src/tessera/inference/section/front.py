"""Throughput against latency: every way in which a network was run, and the front that no other one beats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.inference.section.groups import whole
from tessera.inference.tune.front import front
from tessera.report.blocks import Block, Column, Heading, Plot, Row, Section, Table
from tessera.report.cells import NONE, figure, number, share
from tessera.report.figures import format_rate, format_seconds
from tessera.report.measured import INTERVAL_HINT, measured
from tessera.report.naming import Names, case_names
from tessera.results.record import Record


def front_section(records: Sequence[Record]) -> Section | None:
    """Each network with what was tried of it; None without a measured one."""
    found = whole(records)
    if not found:
        return None
    names = case_names([record.case for record in found])
    blocks: list[Block] = []
    best: set[str] = set()
    for network in dict.fromkeys(record.case.name for record in found):
        own = [record for record in found if record.case.name == network]
        on_front = front((r, r.metrics["throughput"].value, r.metrics["latency_p50"].value) for r in own)
        best |= {record.case.key for record in on_front}
        if len(own) > 1:
            blocks.append(
                Plot(_plot(own, on_front, names), f"{network}: the line joins what no other one beats in both.")
            )
    intro = (
        "Each dot is one way to run a network: an engine, replicas with their threads, a batch. Upwards is more images "
        "per second, to the left is less time for a batch. What a tuning tried is among them."
    )
    return Section("Throughput against latency", intro, [*blocks, _table(found, best, names)])


def _plot(records: Sequence[Record], on_front: Sequence[Record], names: Names) -> dict[str, Any]:
    line = sorted(on_front, key=lambda record: record.metrics["latency_p50"].value)
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "Pareto front",
            **_points(line),
            "hoverinfo": "skip",
            "line": {"color": "var(--muted)", "dash": "dot", "width": 1.4, "shape": "hv"},
        }
    ]
    for index, engine in enumerate(dict.fromkeys(_engine(record) for record in records)):
        own = [record for record in records if _engine(record) == engine]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": engine,
                **_points(own),
                "text": [_words(record, names) for record in own],
                "hovertemplate": "%{text}<extra></extra>",
                "marker": {"size": 9, "opacity": 0.85, "color": f"var(--series-{index % 6 + 1})"},
            }
        )
    layout = {
        "height": 420,
        "xaxis": {"type": "log", "title": {"text": "latency of a batch (median)"}, "ticksuffix": "s"}
        | {"exponentformat": "SI", "minexponent": 0},
        "yaxis": {"rangemode": "tozero", "title": {"text": "images/s"}},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "margin": {"t": 56},
    }
    return {"data": traces, "layout": layout}


def _points(records: Sequence[Record]) -> dict[str, list[float]]:
    return {
        "x": [record.metrics["latency_p50"].value for record in records],
        "y": [record.metrics["throughput"].value for record in records],
    }


def _engine(record: Record) -> str:
    return f"{record.case.params['engine']} {record.case.params['precision']}"


def _words(record: Record, names: Names) -> str:
    rate = format_rate(record.metrics["throughput"].value, "images/s")
    return f"{names[record.case.key].words}: {rate}, {format_seconds(record.metrics['latency_p50'].value)}"


def _table(records: Sequence[Record], best: set[str], names: Names) -> Table:
    columns: list[Heading] = [
        "Case",
        Column("Network", quick=True),
        Column("Engine", quick=True),
        Column("Precision", quick=True),
        Column("Replicas", "number"),
        Column("Cores each", "number"),
        Column("Batch", "number"),
        Column("Images/s", "number", hint="all replicas, while all of them work"),
        Column("Interval", "number", hint=INTERVAL_HINT),
        Column("p50", "number", hint="latency of a batch"),
        Column("p99", "number"),
        Column("Of peak", "number", hint="of the calibrated matrix product on as many cores"),
        Column("First batch", "number", hint="from nothing to the first answer"),
        Column("Memory", "number", hint="resident at most, all replicas"),
        Column("Top-1", "number", hint="images with torch's answer"),
        Column("Front", quick=True, hint="no other one is better in both"),
    ]
    ranked = sorted(records, key=lambda record: (record.case.name, -record.metrics["throughput"].value))
    rows = [_row(record, record.case.key in best, names) for record in ranked]
    return Table(columns, rows, "Every way it was run")


def _row(record: Record, on_front: bool, names: Names) -> Row:
    params, found = record.case.params, measured(record)
    values = {name: figure(metric.value, metric.unit) for name, metric in record.metrics.items()}
    shares = {name: share(record.metrics[name].value) for name in ("peak_fraction", "top1_agreement") if name in values}
    return [
        names[record.case.key].cell,
        record.case.name,
        str(params["engine"]),
        str(params["precision"]),
        number(int(params["num_replicas"])),
        number(int(params["cores_per_replica"])),
        number(int(params["batch_size"])),
        figure(record.metrics["throughput"].value, ""),
        share(found.relative if found else None, "± "),
        values["latency_p50"],
        values.get("latency_p99", NONE),
        shares.get("peak_fraction", NONE),
        values.get("first_batch", NONE),
        values.get("peak_memory", NONE),
        shares.get("top1_agreement", NONE),
        "yes" if on_front else "",
    ]
