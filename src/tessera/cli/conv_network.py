"""What `tessera conv --network` prints: how every layer lies, and the images/s beside what was published."""

from __future__ import annotations

import json
from typing import TextIO

from tessera.cli.conv_tables import plain_plan
from tessera.coregrid.cost.timeline import predicted
from tessera.coregrid.networks.plan import NetworkPlan, NetworkSearch
from tessera.coregrid.planning.plan import MB
from tessera.report.figures import format_percent, format_seconds
from tessera.report.tables import Column, Form, render


def print_network(found: NetworkSearch, form: str, stream: TextIO) -> None:
    """A network step by step, and its images/s beside what was published."""
    plan = found.best
    if form == "json":
        json.dump(_network_plain(found), stream, indent=1)
        stream.write("\n")
        return
    shown: Form = "markdown" if form == "markdown" else "csv" if form == "csv" else "terminal"
    columns = [
        Column("layer"), Column("kind"), Column("layout"), Column("cores", "right"), Column("memory", "right"),
        Column("time", "right"), Column("resharding", "right"), Column("bound by"),
    ]  # fmt: skip
    rows = []
    for step in plan.steps:
        made = step.option.plan if step.option else None
        rows.append(
            [
                step.name,
                step.kind,
                str(made.layout) if made else "",
                str(made.sharding.cores) if made else "",
                f"{made.high_water / MB:.2f} MB" if made else "",
                format_seconds(step.seconds),
                format_seconds(step.resharding) if step.resharding else "",
                predicted(made).bound if made else "",
            ]
        )
    render(columns, rows, shown, stream, title=f"{plan.network.name}, batch {plan.network.batch}, {plan.machine.name}")
    if shown == "terminal":
        stream.writelines(f"{line}\n" for line in network_lines(found))


def network_lines(found: NetworkSearch) -> list[str]:
    """What came of it, in a few lines."""
    plan, known = found.best, found.best.published
    lines = [
        f"{format_seconds(plan.seconds)} a batch: {plan.images_per_second:,.0f} images/s predicted, "
        f"{format_percent(plan.resharding / plan.seconds)} of the time for resharding",
    ]
    for name, other in (("every layer at its own best", found.greedy), ("the chip's own choices", found.auto)):
        if other is None:
            lines.append(f"{name}: does not fit, since some layer finds too little room beside a shortcut")
        else:
            times = other.seconds / plan.seconds
            lines.append(f"{name}: {format_seconds(other.seconds)}, {times:.3f} times as long")
    if known and plan.error is not None:
        which = "on the device" if known.device else "as published"
        lines.append(
            f"published for batch {known.batch}: {known.compared:,.0f} images/s {which}; "
            f"the prediction is {format_percent(plan.error, signed=True)} off"
        )
    return lines


def _network_plain(found: NetworkSearch) -> dict[str, object]:
    def steps(plan: NetworkPlan) -> list[dict[str, object]]:
        return [
            {
                "layer": step.name,
                "kind": step.kind,
                "seconds": step.seconds,
                "resharding": step.resharding,
                **({"plan": plain_plan(step.option.plan)} if step.option and step.option.plan else {}),
            }
            for step in plan.steps
        ]

    plan = found.best
    return {
        "network": plan.network.name,
        "batch": plan.network.batch,
        "machine": plan.machine.name,
        "seconds": plan.seconds,
        "images_per_second": plan.images_per_second,
        "published": plan.published.compared if plan.published else None,
        "error": plan.error,
        "greedy_seconds": found.greedy.seconds if found.greedy else None,
        "auto_seconds": found.auto.seconds if found.auto else None,
        "steps": steps(plan),
    }
