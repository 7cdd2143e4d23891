"""Report parts on throughput: Pareto front with latency, curves over replicas and batch sizes, scaling efficiency."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.inference.tune.pareto import find_pareto_front
from tessera.report.blocks import Block, Cell, Column, Heading, Plot, Row, Section, Table
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
    return Section("Throughput against latency", intro, [*blocks, _build_front_table(measured_records, best, names)])


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
    params = record.case.params
    return f"{params['engine']} {params['precision']}" + (f" on {params['device']}" if "device" in params else "")


def _format_label(record: Record, names: CaseNames) -> str:
    rate = format_rate(record.metrics["throughput"].value, "images/s")
    return f"{names[record.case.key].words}: {rate}, {format_seconds(record.metrics['latency_p50'].value)}"


def _build_front_table(records: Sequence[Record], best: set[str], names: CaseNames) -> Table:
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
    rows = [_build_front_row(record, record.case.key in best, names) for record in ranked]
    return Table(columns, rows, "All measured settings")


def _build_front_row(record: Record, on_front: bool, names: CaseNames) -> Row:
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
        str(params["engine"]) + (f" on {params['device']}" if "device" in params else ""),
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


def build_scaling_section(records: Sequence[Record]) -> Section | None:
    """Build the report part on replicas; None without several numbers of replicas or a measured efficiency."""
    measured = select_throughput_records(records)
    groups = group_curves(measured, "num_replicas", "force")
    scaled = [record for record in measured if "efficiency" in record.metrics]
    if not groups and not scaled:
        return None
    intro = (
        "A replica is a whole copy of the network in its own process. `efficiency` is the rate of all replicas over "
        "their number times the rate of the first replica alone, in alternating windows."
    )
    blocks: list[Block] = []
    if groups:
        blocks.append(Plot(plot_rate_curves(groups, "replicas"), "Images per second over replicas."))
    if scaled:
        blocks.append(_build_scaling_table(scaled))
    return Section("Replicas", intro, blocks)


def _build_scaling_table(records: Sequence[Record]) -> Table:
    names = name_cases([record.case for record in records])
    columns: list[Heading] = [
        "Case",
        Column("Replicas", "number"),
        Column("Cores each", "number"),
        Column("Images/s", "number"),
        Column("Efficiency", "number", hint="rate over the number of replicas times the rate of one replica alone"),
        Column("Interval", "number", hint="95 % confidence interval of the efficiency"),
        Column("Slowest replica", "number", hint="median images/s of the slowest"),
        Column("Fastest replica", "number", hint="median images/s of the fastest"),
    ]
    rows = [_build_scaling_row(record, names[record.case.key].cell) for record in records]
    return Table(columns, rows, "All measured numbers of replicas")


def _build_scaling_row(record: Record, name: Cell) -> Row:
    params, metrics = record.case.params, record.metrics
    low, high = (metrics.get(f"efficiency_{end}") for end in ("low", "high"))
    between = Cell(f"{low.value:.1%} to {high.value:.1%}", low.value) if low and high else EMPTY_CELL
    medians = sorted(_get_median(rank) for rank in record.launches[0].ranks)
    return [
        name,
        Cell(str(params["num_replicas"]), int(params["num_replicas"])),
        Cell(str(params["cores_per_replica"]), int(params["cores_per_replica"])),
        make_value_cell(metrics["throughput"].value, ""),
        make_share_cell(metrics["efficiency"].value),
        between,
        make_value_cell(medians[0], "") if medians else EMPTY_CELL,
        make_value_cell(medians[-1], "") if medians else EMPTY_CELL,
    ]


def _get_median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


MAX_CURVES = 8


def select_throughput_records(records: Sequence[Record]) -> list[Record]:
    """Return the records of mode offline that have a throughput and a latency, without `--by-operator` records."""
    return [
        record
        for record in records
        if record.status == "ok"
        and not record.case.params.get("by_operator")
        and record.case.params.get("mode", "offline") == "offline"
        and {"throughput", "latency_p50"} <= record.metrics.keys()
    ]


def group_curves(records: Sequence[Record], axis: str, *dependent: str) -> dict[str, dict[int, Record]]:
    """Group records whose cases differ only in the parameter `axis`; each group is a curve over the values of `axis`.

    `dependent` names parameters that follow from `axis` and do not distinguish curves. Groups of one are omitted.
    """
    cases = [record.case.without(axis, *dependent) for record in records]
    names = name_cases(cases)
    groups: dict[str, dict[int, Record]] = {}
    for record, case in zip(records, cases, strict=True):
        if axis in record.case.params:
            groups.setdefault(names[case.key].words, {})[int(record.case.params[axis])] = record
    return {name: dict(sorted(curve.items())) for name, curve in groups.items() if len(curve) > 1}


def plot_rate_curves(groups: dict[str, dict[int, Record]], title: str) -> dict[str, Any]:
    """Plot images per second over an axis, one curve per group."""
    shown = list(groups.items())[:MAX_CURVES]
    traces = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": name,
            "x": list(curve),
            "y": [record.metrics["throughput"].value for record in curve.values()],
            "text": [
                f"{name}, {title} {value}: {format_rate(record.metrics['throughput'].value, 'images/s')}"
                for value, record in curve.items()
            ],
            "hovertemplate": "%{text}<extra></extra>",
            "line": {"color": f"var(--series-{number % 6 + 1})", "width": 1.6},
        }
        for number, (name, curve) in enumerate(shown)
    ]
    values = sorted({value for _, curve in shown for value in curve})
    layout = {
        "height": 340 + 20 * len(traces),
        "showlegend": len(traces) > 1,
        "legend": {"orientation": "v", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 12}},
        "margin": {"t": 20 * len(traces) + 16},
        "xaxis": {"type": "log", "tickvals": values, "ticktext": [str(n) for n in values], "title": {"text": title}},
        "yaxis": {"rangemode": "tozero", "title": {"text": "images/s"}},
    }
    return {"data": traces, "layout": layout}


def build_batch_section(records: Sequence[Record]) -> Section | None:
    """Build the report part on batch sizes; None if no network was measured with several batch sizes."""
    groups = group_curves(select_throughput_records(records), "batch_size")
    if not groups:
        return None
    intro = "Images per second by batch size. The latency of a batch grows with its size."
    plot = Plot(plot_rate_curves(groups, "batch size"), "One curve per combination of settings.")
    return Section("Batch size", intro, [plot])
