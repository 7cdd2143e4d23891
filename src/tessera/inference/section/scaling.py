"""Replicas: what more of them add, and how that compares with as many times one."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.inference.section.groups import curves, rate_curves, whole
from tessera.report.blocks import Block, Cell, Column, Heading, Plot, Row, Section, Table
from tessera.report.cells import NONE, figure, share
from tessera.report.naming import case_names
from tessera.results.record import Record


def scaling_section(records: Sequence[Record]) -> Section | None:
    """Networks on several numbers of replicas, or with a measured efficiency; None without either."""
    found = whole(records)
    groups = curves(found, "num_replicas", "force")
    scaled = [record for record in found if "efficiency" in record.metrics]
    if not groups and not scaled:
        return None
    intro = (
        "A replica is a whole copy of the network in a process of its own. `efficiency` is what all of them reach "
        "together over as many times what the first one reaches alone, in windows between theirs."
    )
    blocks: list[Block] = []
    if groups:
        blocks.append(Plot(rate_curves(groups, "replicas"), "Images per second over replicas."))
    if scaled:
        blocks.append(_table(scaled))
    return Section("Replicas", intro, blocks)


def _table(records: Sequence[Record]) -> Table:
    names = case_names([record.case for record in records])
    columns: list[Heading] = [
        "Case",
        Column("Replicas", "number"),
        Column("Cores each", "number"),
        Column("Images/s", "number"),
        Column("Efficiency", "number", hint="over as many times one replica alone"),
        Column("Between", "number", hint="the 95 % interval of the efficiency"),
        Column("Slowest replica", "number", hint="median images/s of the slowest"),
        Column("Fastest replica", "number", hint="median images/s of the fastest"),
    ]
    return Table(columns, [_row(record, names[record.case.key].cell) for record in records], "Every set of replicas")


def _row(record: Record, name: Cell) -> Row:
    params, metrics = record.case.params, record.metrics
    low, high = (metrics.get(f"efficiency_{end}") for end in ("low", "high"))
    between = Cell(f"{low.value:.1%} to {high.value:.1%}", low.value) if low and high else NONE
    medians = sorted(_middle(rank) for rank in record.launches[0].ranks)
    return [
        name,
        Cell(str(params["num_replicas"]), int(params["num_replicas"])),
        Cell(str(params["cores_per_replica"]), int(params["cores_per_replica"])),
        figure(metrics["throughput"].value, ""),
        share(metrics["efficiency"].value),
        between,
        figure(medians[0], "") if medians else NONE,
        figure(medians[-1], "") if medians else NONE,
    ]


def _middle(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]
