"""Report parts on replicas and batch sizes: throughput curves and scaling efficiency."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.report.blocks import Block, Cell, Column, Heading, Plot, Row, Section, Table
from tessera.report.cells import EMPTY_CELL, make_share_cell, make_value_cell
from tessera.report.figures import format_rate
from tessera.report.naming import name_cases
from tessera.results.record import Record


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
        blocks.append(_build_table(scaled))
    return Section("Replicas", intro, blocks)


def _build_table(records: Sequence[Record]) -> Table:
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
    rows = [_build_row(record, names[record.case.key].cell) for record in records]
    return Table(columns, rows, "All measured numbers of replicas")


def _build_row(record: Record, name: Cell) -> Row:
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
