"""The inference section of the report: throughput over latency, batch sizes, replicas, servers, operators."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.inference.section.operators import build_operators_section
from tessera.inference.section.throughput import (
    build_batch_section,
    build_front_section,
    build_scaling_section,
    select_throughput_records,
)
from tessera.report.blocks import Card, Cell, Column, Heading, Row, Section, Table
from tessera.report.cells import make_count_cell, make_value_cell
from tessera.report.feature_section import build_feature_section
from tessera.report.figures import format_percent, format_rate
from tessera.report.naming import name_cases
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
        peak = metrics.get("peak_fraction")
        remark = (
            f"{params['engine']} {params['precision']}, {params['num_replicas']} x {params['cores_per_replica']}, "
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
