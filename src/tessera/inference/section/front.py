"""Report part: throughput over latency of all measured settings, and their Pareto front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.inference.section.scaling import select_throughput_records
from tessera.inference.tune.pareto import find_pareto_front
from tessera.report.blocks import Block, Column, Heading, Plot, Row, Section, Table
from tessera.report.cells import EMPTY_CELL, make_count_cell, make_share_cell, make_value_cell
from tessera.report.figures import format_rate, format_seconds
from tessera.report.measured import INTERVAL_HINT, summarize_record
from tessera.report.naming import CaseNames, name_cases
from tessera.results.record import Record


def build_front_section(records: Sequence[Record]) -> Section | None:
    """Build the report part on throughput and latency of each network; None if no network was measured."""
    measured_records = select_throughput_records(records)
    if not measured_records:
        return None
    names = name_cases([record.case for record in measured_records])
    blocks: list[Block] = []
    best: set[str] = set()
    for network in dict.fromkeys(record.case.name for record in measured_records):
        network_records = [record for record in measured_records if record.case.name == network]
        on_front = find_pareto_front(
            (r, r.metrics["throughput"].value, r.metrics["latency_p50"].value) for r in network_records
        )
        best |= {record.case.key for record in on_front}
        if len(network_records) > 1:
            blocks.append(
                Plot(_plot_front(network_records, on_front, names), f"{network}: the line joins the Pareto front.")
            )
    intro = (
        "Each dot is one combination of engine, replicas, threads and batch size. Higher is more images per second, "
        "further left is lower latency. Candidates of a tuning are included."
    )
    return Section("Throughput against latency", intro, [*blocks, _build_table(measured_records, best, names)])


def _plot_front(records: Sequence[Record], on_front: Sequence[Record], names: CaseNames) -> dict[str, Any]:
    line = sorted(on_front, key=lambda record: record.metrics["latency_p50"].value)
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "Pareto front",
            **_get_points(line),
            "hoverinfo": "skip",
            "line": {"color": "var(--muted)", "dash": "dot", "width": 1.4, "shape": "hv"},
        }
    ]
    for index, engine in enumerate(dict.fromkeys(_format_engine(record) for record in records)):
        engine_records = [record for record in records if _format_engine(record) == engine]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": engine,
                **_get_points(engine_records),
                "text": [_format_label(record, names) for record in engine_records],
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


def _get_points(records: Sequence[Record]) -> dict[str, list[float]]:
    return {
        "x": [record.metrics["latency_p50"].value for record in records],
        "y": [record.metrics["throughput"].value for record in records],
    }


def _format_engine(record: Record) -> str:
    return f"{record.case.params['engine']} {record.case.params['precision']}"


def _format_label(record: Record, names: CaseNames) -> str:
    rate = format_rate(record.metrics["throughput"].value, "images/s")
    return f"{names[record.case.key].words}: {rate}, {format_seconds(record.metrics['latency_p50'].value)}"


def _build_table(records: Sequence[Record], best: set[str], names: CaseNames) -> Table:
    columns: list[Heading] = [
        "Case",
        Column("Network", quick=True),
        Column("Engine", quick=True),
        Column("Precision", quick=True),
        Column("Replicas", "number"),
        Column("Cores each", "number"),
        Column("Batch", "number"),
        Column("Images/s", "number", hint="sum over replicas, while all of them compute"),
        Column("Interval", "number", hint=INTERVAL_HINT),
        Column("p50", "number", hint="latency of a batch"),
        Column("p99", "number"),
        Column("Of peak", "number", hint="FLOP/s relative to the calibrated matrix product on as many cores"),
        Column("First batch", "number", hint="time from the start of loading to the first result"),
        Column("Memory", "number", hint="peak memory of all replicas"),
        Column("Top-1", "number", hint="share of images with the same predicted class as torch"),
        Column("Front", quick=True, hint="on the Pareto front of images/s and latency"),
    ]
    ranked = sorted(records, key=lambda record: (record.case.name, -record.metrics["throughput"].value))
    rows = [_build_row(record, record.case.key in best, names) for record in ranked]
    return Table(columns, rows, "All measured settings")


def _build_row(record: Record, on_front: bool, names: CaseNames) -> Row:
    params, interval = record.case.params, summarize_record(record)
    values = {name: make_value_cell(metric.value, metric.unit) for name, metric in record.metrics.items()}
    shares = {
        name: make_share_cell(record.metrics[name].value)
        for name in ("peak_fraction", "top1_agreement")
        if name in values
    }
    return [
        names[record.case.key].cell,
        record.case.name,
        str(params["engine"]),
        str(params["precision"]),
        make_count_cell(int(params["num_replicas"])),
        make_count_cell(int(params["cores_per_replica"])),
        make_count_cell(int(params["batch_size"])),
        make_value_cell(record.metrics["throughput"].value, ""),
        make_share_cell(interval.relative if interval else None, "± "),
        values["latency_p50"],
        values.get("latency_p99", EMPTY_CELL),
        shares.get("peak_fraction", EMPTY_CELL),
        values.get("first_batch", EMPTY_CELL),
        values.get("peak_memory", EMPTY_CELL),
        shares.get("top1_agreement", EMPTY_CELL),
        "yes" if on_front else "",
    ]
