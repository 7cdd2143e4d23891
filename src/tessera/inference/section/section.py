"""The inference section of the report: throughput over latency, batch sizes, replicas, servers, operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tessera.inference.section.throughput import (
    build_batch_section,
    build_front_section,
    build_scaling_section,
    select_throughput_records,
)
from tessera.report.blocks import Block, Card, Cell, Column, Heading, Plot, Row, Section, Table, Text
from tessera.report.cells import EMPTY_CELL, make_count_cell, make_share_cell, make_value_cell
from tessera.report.feature_section import build_feature_section
from tessera.report.figures import format_percent, format_rate
from tessera.report.naming import CaseNames, name_cases
from tessera.report.plots import make_row_layout, make_value_axis
from tessera.report.runs import RunView
from tessera.results.record import Record

MAX_CARDS = 6


def build_section(runs: Sequence[RunView]) -> Section:
    """Build the inference section from the newest run; earlier runs appear in the comparison section only."""
    intro = (
        "Whole networks in several engines, on pinned replicas that start together. A rate is the sum of all replicas "
        "while all of them compute. An engine is timed only after its outputs agree with torch."
    )
    records = runs[-1].records
    parts = (
        build_front_section(records),
        build_batch_section(records),
        build_scaling_section(records),
        build_serving_section(records),
        build_operators_section(records),
    )
    return build_feature_section("Inference", intro, runs, cards=_build_cards(records), parts=parts)


def _build_cards(records: Sequence[Record]) -> list[Card]:
    """Return one card per network with its highest rate and the settings of that record."""
    cards = []
    measured = select_throughput_records(records)
    for network in dict.fromkeys(record.case.name for record in measured):
        network_records = [record for record in measured if record.case.name == network]
        best = max(network_records, key=lambda record: record.metrics["throughput"].value)
        params, metrics = best.case.params, best.metrics
        peak, on = metrics.get("peak_fraction"), f" on {params['device']}" if "device" in params else ""
        remark = (
            f"{params['engine']}{on} {params['precision']}, {params['num_replicas']} x {params['cores_per_replica']}, "
            f"batch {params['batch_size']}" + (f"; {format_percent(peak.value)} of the peak" if peak else "")
        )
        cards.append(Card(network, format_rate(metrics["throughput"].value, "images/s"), remark))
    return cards[:MAX_CARDS]


def build_serving_section(records: Sequence[Record]) -> Section | None:
    """Build the report part on mode server; None if there are no such records."""
    servers = [
        r for r in records if r.status == "ok" and r.case.params.get("mode") == "server" and "trials" in r.details
    ]
    if not servers:
        return None
    names = name_cases([record.case for record in servers])
    intro = (
        "Images arrive at random at a rate, and 99 % must be answered within the bound, counted from their arrival. "
        "The highest rate within the bound is found by bisection."
    )
    columns: list[Heading] = [
        Column("Case", quick=True),
        Column("Load generator", quick=True),
        Column("Rate", "number"),
        Column("Queries", "number"),
        Column("Answered", "number", hint="answered images per second"),
        Column("p99", "number", hint="from arrival to answer"),
        Column("Maximum latency", "number"),
        Column("Latency bound", quick=True),
    ]
    rows: list[Row] = [
        [
            names[record.case.key].cell,
            str(record.chosen.get("load_generator", "")),
            make_value_cell(trial["rate"], "images/s"),
            make_count_cell(trial["questions"]),
            make_value_cell(trial["achieved"], "images/s"),
            make_value_cell(trial["latency_p99"], "s"),
            make_value_cell(record.metrics["max_latency"].value, "s"),
            Cell("met", tone="good") if trial["held"] else Cell("not met", tone="warn"),
        ]
        for record in servers
        for trial in record.details["trials"]
    ]
    return Section("Servers", intro, [Table(columns, rows, "All rates tried")])


MAX_KINDS = 6  # maximum number of operator kinds with their own colour in the plot
MAX_LAYERS = 30


def build_operators_section(records: Sequence[Record]) -> Section | None:
    """Build the report part on networks timed by operator; None if there are none."""
    timed = [r for r in records if r.status == "ok" and r.case.params.get("by_operator") and r.details.get("kinds")]
    if not timed:
        return None
    names = name_cases([record.case for record in timed])
    intro = (
        "Every operator is timed in place, by hooks in torch or by the engine's profiler. The roofline is the minimum "
        "time of the calibrated machine for the FLOPs and bytes, over the measured time."
    )
    blocks: list[Block] = [_summarise_totals(record, names) for record in timed]
    blocks += [
        Plot(_plot_shares(timed, names), "Share of each kind of operator in the time of all operators."),
        _build_table(timed, names, "kinds", "Operator", "Every kind of operator"),
        _build_table(timed, names, "layers", "Layer", f"The {MAX_LAYERS} most expensive layers of each case"),
    ]
    return Section("Operators' shares", intro, blocks)


def _summarise_totals(record: Record, names: CaseNames) -> Text:
    """Return a text with the timing method and the sum of the operator times."""
    return Text(f"`{names[record.case.key].words}`: {'; '.join(record.details.get('remarks', ()))}.")


def _plot_shares(records: Sequence[Record], names: CaseNames) -> dict[str, Any]:
    """Plot a stacked bar for each record: the most expensive kinds of operators, and all other kinds as one segment."""
    total: dict[str, float] = {}
    for record in records:
        for group in record.details["kinds"]:
            total[group["name"]] = total.get(group["name"], 0.0) + group["share"]
    kinds = sorted(total, key=lambda kind: total[kind], reverse=True)[:MAX_KINDS]
    labels = [names[record.case.key].words for record in records]
    traces = [
        _build_bars(kind, [_get_share(record, kind) for record in records], labels, f"var(--series-{number % 6 + 1})")
        for number, kind in enumerate(kinds)
    ]
    rest = [1 - sum(_get_share(record, kind) for kind in kinds) for record in records]
    if max(rest) > 0.001:
        traces.append(_build_bars("all others", rest, labels, "var(--muted)"))
    layout = make_row_layout(labels, 1, legend=True)
    layout["legend"] |= {"traceorder": "normal"}
    layout |= {"barmode": "stack", "xaxis": make_value_axis(" %", logarithmic=False) | {"range": [0, 100]}}
    return {"data": traces, "layout": layout}


def _get_share(record: Record, kind: str) -> float:
    return sum(float(group["share"]) for group in record.details["kinds"] if group["name"] == kind)


def _build_bars(name: str, shares: Sequence[float], labels: Sequence[str], colour: str) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "x": [100 * max(0.0, part) for part in shares],
        "y": list(labels),
        "hovertemplate": "%{fullData.name}: %{x:.1f} %<extra></extra>",
        "marker": {"color": colour},
    }


def _build_table(records: Sequence[Record], names: CaseNames, grouping: str, heading: str, caption: str) -> Table:
    columns: list[Heading] = [
        Column("Case", quick=True),
        heading,
        Column("Calls", "number"),
        Column("Time", "number"),
        Column("Share", "number", hint="of all operators"),
        Column("FLOP", "number"),
        Column("Bytes", "number", hint="read and written"),
        Column("Of roofline", "number", hint="minimum time of the machine over measured time"),
    ]
    rows = [
        [names[record.case.key].cell, *_build_row(group)]
        for record in records
        for group in record.details[grouping][: MAX_LAYERS if grouping == "layers" else None]
    ]
    return Table(columns, rows, caption)


def _build_row(group: Mapping[str, Any]) -> Row:
    return [
        str(group["name"]),
        Cell(str(group["calls"]), int(group["calls"])),
        make_value_cell(float(group["seconds"]), "s"),
        make_share_cell(float(group["share"])),
        make_value_cell(group["flops"], "FLOP") if group["flops"] else EMPTY_CELL,
        make_value_cell(group["moved"], "B") if group["moved"] else EMPTY_CELL,
        make_share_cell(group["roofline"]),
    ]
