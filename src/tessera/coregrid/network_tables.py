"""Text output of a planned network: the table of its layers, a summary, and the plan as JSON."""

from __future__ import annotations

from typing import TextIO

from tessera.coregrid.networks.energy import NetworkEnergy, estimate_energy
from tessera.coregrid.networks.plan import NetworkPlan, NetworkPlanStep, NetworkSearch
from tessera.coregrid.planning.plan import MIB
from tessera.coregrid.tables import build_plan_json
from tessera.report.blocks import Column
from tessera.report.figures import format_percent, format_seconds
from tessera.report.tables import OutputFormat, write_json, write_rows

NETWORK_COLUMNS = (
    *(Column(name) for name in ("layer", "kind", "layout")),
    *(Column(name, "number") for name in ("cores", "memory", "time", "moving")),
    Column("bound by"),
)
MAX_NAMED_LAYERS = 4  # layers that a line of the summary names


def print_network(search: NetworkSearch, output_format: OutputFormat, stream: TextIO) -> None:
    """Print the layers of a planned network, and the network's predicted and published images/s."""
    plan = search.best
    if output_format == "json":
        write_json(build_network_json(search), stream)
        return
    rows = [
        [
            step.name,
            step.kind,
            describe_layout(step),
            str(count_cores(step) or ""),
            f"{step.memory / MIB:.2f} MiB" if step.memory else "",
            format_seconds(step.seconds),
            format_seconds(step.moving) if step.moving else "",
            step.bound,
        ]
        for step in plan.steps
    ]
    title = f"{plan.network.name}, batch {plan.network.batch}, {plan.machine.name}"
    write_rows(NETWORK_COLUMNS, rows, output_format, stream, title=title)
    if output_format == "terminal":
        stream.writelines(f"{line}\n" for line in summarise_network(search))


def describe_layout(step: NetworkPlanStep) -> str:
    """Return the shard layout of a layer's output, the number of slices, or `global`."""
    plan, target = step.option.plan, step.option.target
    if plan is not None:
        return f"{plan.layout} in {len(plan.slices)} slices" if plan.slices else str(plan.layout)
    if target is None:
        return "global"
    return "HEIGHT" if target.columns == 1 else "WIDTH" if target.rows == 1 else "BLOCK"


def count_cores(step: NetworkPlanStep) -> int:
    """Return the number of cores that hold the output of a layer; 0 for global memory."""
    if step.option.plan is not None:
        return step.option.plan.sharding.cores
    return step.option.target.cores if step.option.target else 0


def summarise_network(search: NetworkSearch) -> list[str]:
    """Return a summary of a planned network as lines of text."""
    plan, published = search.best, search.best.published
    launching = sum(step.launching for step in plan.steps)
    lines = [
        f"{format_seconds(plan.seconds)} per batch: {plan.images_per_second:,.0f} images/s predicted, "
        f"{format_percent(plan.moving / plan.seconds)} of the time for moving tensors, "
        f"{format_percent(launching / plan.seconds)} for program launches",
        f"kernels alone: {format_seconds(plan.kernel_seconds)}, {plan.kernel_images_per_second:,.0f} images/s",
        _describe_energy(estimate_energy(plan), plan),
    ]
    for name, baseline in (("fastest option of every layer", search.greedy), ("the chip's default rule", search.auto)):
        if baseline is None:
            lines.append(f"{name}: does not fit")
        else:
            times = baseline.seconds / plan.seconds
            lines.append(f"{name}: {format_seconds(baseline.seconds)}, {times:.3f} times as long")
    lines += explain_network_memory(plan)
    if published and plan.error is not None:
        lines.append(
            f"published for batch {published.batch}: {published.rate:,.0f} images/s for the kernels; "
            f"the prediction is {format_percent(plan.error, signed=True)} off"
        )
    return lines


def _describe_energy(energy: NetworkEnergy, plan: NetworkPlan) -> str:
    parts = ", ".join(f"{name} {joules / plan.network.batch * 1e3:.2f}" for name, joules in energy.parts.items())
    return f"energy: {energy.total / plan.network.batch * 1e3:.2f} mJ per image ({parts})"


def explain_network_memory(plan: NetworkPlan) -> list[str]:
    """Return lines that name the layers that do not fit the cores, what they cost, and the smallest change."""
    lines = []
    sliced = [step for step in plan.steps if step.option.plan is not None and step.option.plan.slices]
    if sliced:
        seconds = sum(step.total for step in sliced)
        lines.append(
            f"{len(sliced)} layers do not fit the cores and pass through global memory in slices, "
            f"{format_percent(seconds / plan.seconds)} of the time: {_name_steps(sliced)}"
        )
    spills = [(step, layer) for step in plan.steps for layer in step.spilled]
    if spills:
        names = [plan.network.layers[layer].name if layer >= 0 else "the images" for _, layer in spills]
        lines.append(f"{len(spills)} tensors wait in global memory: {_join_names(names)}")
    other = [step for step in plan.steps if step.option.through_global and step not in sliced and step.kind != "fold"]
    if other:
        lines.append(f"{len(other)} other layers are computed in global memory: {_name_steps(other)}")
    return lines


def _name_steps(steps: list[NetworkPlanStep]) -> str:
    return _join_names([step.name for step in steps])


def _join_names(names: list[str]) -> str:
    rest = len(names) - MAX_NAMED_LAYERS
    return ", ".join(names[:MAX_NAMED_LAYERS]) + (f" and {rest} more" if rest > 0 else "")


def build_network_json(search: NetworkSearch) -> dict[str, object]:
    """Return a planned network as a dict of plain values, for JSON output."""
    plan = search.best
    energy = estimate_energy(plan)
    return {
        "network": plan.network.name,
        "batch": plan.network.batch,
        "machine": plan.machine.name,
        "dtype": plan.config.dtype.name,
        "weights_dtype": plan.config.weights_dtype.name,
        "math_fidelity": plan.compute.math_fidelity.name,
        "seconds": plan.seconds,
        "kernel_seconds": plan.kernel_seconds,
        "images_per_second": plan.images_per_second,
        "kernel_images_per_second": plan.kernel_images_per_second,
        "joules_per_image": {name: joules / plan.network.batch for name, joules in energy.parts.items()},
        "published": plan.published.rate if plan.published else None,
        "error": plan.error,
        "greedy_seconds": search.greedy.seconds if search.greedy else None,
        "auto_seconds": search.auto.seconds if search.auto else None,
        "steps": [
            {
                "layer": step.name,
                "kind": step.kind,
                "layout": describe_layout(step),
                "cores": count_cores(step),
                "memory": step.memory,
                "seconds": step.seconds,
                "moving": step.moving,
                "launching": step.launching,
                "spilled": [plan.network.layers[layer].name for layer in step.spilled if layer >= 0],
                **({"plan": build_plan_json(step.option.plan)} if step.option.plan else {}),
            }
            for step in plan.steps
        ],
    }
