"""Output of `tessera conv --network`: the layout of every layer, and predicted and published images/s."""

from __future__ import annotations

from typing import TextIO

from tessera.coregrid.cost.timeline import predict_time
from tessera.coregrid.networks.plan import NetworkPlan, NetworkSearch
from tessera.coregrid.planning.plan import MIB
from tessera.coregrid.tables import build_plan_json
from tessera.report.blocks import Column
from tessera.report.figures import format_percent, format_seconds
from tessera.report.tables import OutputFormat, write_json, write_rows


def print_network(search: NetworkSearch, output_format: OutputFormat, stream: TextIO) -> None:
    """Print the steps of a planned network, and the network's predicted and published images/s."""
    plan = search.best
    if output_format == "json":
        write_json(build_network_json(search), stream)
        return
    columns = [
        Column("layer"), Column("kind"), Column("layout"), Column("cores", "number"), Column("memory", "number"),
        Column("time", "number"), Column("resharding", "number"), Column("bound by"),
    ]  # fmt: skip
    rows = []
    for step in plan.steps:
        conv_plan = step.option.plan if step.option else None
        rows.append(
            [
                step.name,
                step.kind,
                str(conv_plan.layout) if conv_plan else "",
                str(conv_plan.sharding.cores) if conv_plan else "",
                f"{conv_plan.high_water / MIB:.2f} MiB" if conv_plan else "",
                format_seconds(step.seconds),
                format_seconds(step.resharding) if step.resharding else "",
                predict_time(conv_plan).bound if conv_plan else "",
            ]
        )
    write_rows(
        columns,
        rows,
        output_format,
        stream,
        title=f"{plan.network.name}, batch {plan.network.batch}, {plan.machine.name}",
    )
    if output_format == "terminal":
        stream.writelines(f"{line}\n" for line in summarise_network(search))


def summarise_network(search: NetworkSearch) -> list[str]:
    """Return a summary of a planned network as lines of text."""
    plan, published = search.best, search.best.published
    lines = [
        f"{format_seconds(plan.seconds)} per batch: {plan.images_per_second:,.0f} images/s predicted, "
        f"{format_percent(plan.resharding / plan.seconds)} of the time for resharding"
    ]
    for name, baseline in (("fastest option of every layer", search.greedy), ("the chip's default rule", search.auto)):
        if baseline is None:
            lines.append(f"{name}: does not fit, because the input of a shortcut occupies memory that a layer needs")
        else:
            times = baseline.seconds / plan.seconds
            lines.append(f"{name}: {format_seconds(baseline.seconds)}, {times:.3f} times as long")
    if published and plan.error is not None:
        lines.append(
            f"published for batch {published.batch}: {published.rate:,.0f} images/s on the device; "
            f"the prediction is {format_percent(plan.error, signed=True)} off"
        )
    return lines


def build_network_json(search: NetworkSearch) -> dict[str, object]:
    """Return a planned network as a dict of plain values, for JSON output."""

    def list_steps(plan: NetworkPlan) -> list[dict[str, object]]:
        return [
            {
                "layer": step.name,
                "kind": step.kind,
                "seconds": step.seconds,
                "resharding": step.resharding,
                **({"plan": build_plan_json(step.option.plan)} if step.option and step.option.plan else {}),
            }
            for step in plan.steps
        ]

    plan = search.best
    return {
        "network": plan.network.name,
        "batch": plan.network.batch,
        "machine": plan.machine.name,
        "seconds": plan.seconds,
        "images_per_second": plan.images_per_second,
        "published": plan.published.rate if plan.published else None,
        "error": plan.error,
        "greedy_seconds": search.greedy.seconds if search.greedy else None,
        "auto_seconds": search.auto.seconds if search.auto else None,
        "steps": list_steps(plan),
    }
