"""The networks' part of the report: throughput against latency, batches, replicas, servers, operators' shares."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.inference.section.batches import batches_section
from tessera.inference.section.front import front_section
from tessera.inference.section.groups import whole
from tessera.inference.section.operators import operators_section
from tessera.inference.section.scaling import scaling_section
from tessera.inference.section.serving import serving_section
from tessera.report.blocks import Card, Section
from tessera.report.figures import format_percent, format_rate
from tessera.report.newest import newest_section
from tessera.report.runs import RunView
from tessera.results.record import Record

MOST_CARDS = 6


def section(runs: Sequence[RunView]) -> Section:
    """Every inference case of the newest run; the comparison shows the others."""
    intro = (
        "Whole networks in the engines that people use, on replicas that are pinned and start together. A rate is that "
        "of all replicas while all of them work; an engine is timed once it gives torch's answers."
    )
    records = runs[-1].records
    parts = (
        front_section(records),
        batches_section(records),
        scaling_section(records),
        serving_section(records),
        operators_section(records),
    )
    return newest_section("Inference", intro, runs, cards=_cards(records), parts=parts)


def _cards(records: Sequence[Record]) -> list[Card]:
    """The best rate of each network, with what reached it."""
    found = []
    measured = whole(records)
    for network in dict.fromkeys(record.case.name for record in measured):
        own = [record for record in measured if record.case.name == network]
        best = max(own, key=lambda record: record.metrics["throughput"].value)
        params, metrics = best.case.params, best.metrics
        peak = metrics.get("peak_fraction")
        remark = (
            f"{params['engine']} {params['precision']}, {params['num_replicas']} x {params['cores_per_replica']}, "
            f"batch {params['batch_size']}" + (f"; {format_percent(peak.value)} of the peak" if peak else "")
        )
        found.append(Card(network, format_rate(metrics["throughput"].value, "images/s"), remark))
    return found[:MOST_CARDS]
