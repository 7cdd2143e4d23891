"""A plan as code for ttnn, ready to paste: configs, memory configs and the call; or as JSON."""

from __future__ import annotations

from dataclasses import fields
from enum import Enum
from typing import Any

from tessera.coregrid.activations import NO_ACTIVATION
from tessera.coregrid.cores import CoreRangeSet
from tessera.coregrid.execution.program import ConvProgram
from tessera.coregrid.memory_config import MemoryConfig
from tessera.coregrid.networks.plan import NetworkPlan, NetworkPlanStep
from tessera.coregrid.planning.plan import ConvPlan, describe_plan
from tessera.coregrid.ttnn.calls import TtnnConvConfig
from tessera.geometry import Mesh

# Fields of this package's config that ttnn does not have, or has as an argument of the call.
OMITTED_FIELDS = {"dtype", "halo_mode", "input_channels_alignment", "enable_split_reader"}


def emit_conv2d(plan: ConvPlan) -> str:
    """Return a program that executes a plan with ttnn. Input, weights and bias are the names of tensors."""
    lines = [
        f"# {describe_plan(plan)}",
        f"# {plan.fit_summary}",
        f"conv_config = {_format_config(plan)}",
        f"compute_config = {_format_compute_config(plan)}",
    ]
    if plan.slices:
        lines.append(f"slice_config = {_format_slices(plan)}")
    else:
        lines += [
            f"input_memory_config = {_format_memory_config(ConvProgram.of(plan).input)}",
            "input_tensor = ttnn.to_memory_config(input_tensor, input_memory_config)",
        ]
    arguments = {
        "input_tensor": "input_tensor",
        "weight_tensor": "weight_tensor",
        "bias_tensor": "bias_tensor" if plan.setup.bias else "None",
        "device": "device",
        **{name: repr(value) for name, value in plan.conv.call_arguments.items()},
        "conv_config": "conv_config",
        "compute_config": "compute_config",
        **({"slice_config": "slice_config"} if plan.slices else {}),
        "dtype": f"ttnn.{plan.config.dtype.name}",
        "return_output_dim": "True",
    }
    lines.append(f"output_tensor, [output_height, output_width] = {_format_call('ttnn.conv2d', arguments)}")
    return "\n".join(["import ttnn", "", *lines, ""])


def emit_network(plan: NetworkPlan) -> str:
    """Return the settings of all convolutions of a network by layer name, for a program that calls ttnn."""
    lines = [
        "import ttnn",
        "",
        f"# {plan.network.name}, batch {plan.network.batch}, {plan.machine.name}: "
        f"{plan.images_per_second:,.0f} images/s predicted",
        "# Layer: (conv config, memory config of the input, slice config)",
        "CONVOLUTIONS = {",
    ]
    for step in plan.steps:
        if step.option.plan is not None:
            lines.append(_format_entry(step, step.option.plan))
    return "\n".join([*lines, "}", ""])


def _format_entry(step: NetworkPlanStep, plan: ConvPlan) -> str:
    where = "ttnn.DRAM_MEMORY_CONFIG" if plan.slices else _format_memory_config(ConvProgram.of(plan).input)
    slices = _format_slices(plan) if plan.slices else "None"
    parts = [_format_config(plan), where, slices]
    body = "".join(f"        {part.replace(chr(10), chr(10) + ' ' * 8)},\n" for part in parts)
    return f"    {step.name!r}: (\n{body}    ),"


def _format_config(plan: ConvPlan) -> str:
    config, default = plan.config, TtnnConvConfig()
    arguments = {"weights_dtype": f"ttnn.{config.weights_dtype.name}"}
    arguments["shard_layout"] = f"ttnn.TensorMemoryLayout.{plan.layout}_SHARDED"
    for field in fields(config):
        value = getattr(config, field.name)
        if field.name in OMITTED_FIELDS or field.name in arguments or value == getattr(default, field.name):
            continue
        arguments[field.name] = _format_value(field.name, value)
    if config.enable_split_reader:
        arguments["force_split_reader"] = "True"
    return _format_call("ttnn.Conv2dConfig", arguments)


def _format_compute_config(plan: ConvPlan) -> str:
    compute = plan.compute
    arguments = {
        "math_fidelity": f"ttnn.MathFidelity.{compute.math_fidelity.name}",
        "math_approx_mode": repr(compute.math_approx_mode),
        "fp32_dest_acc_en": repr(compute.fp32_dest_acc_en),
        "packer_l1_acc": repr(compute.packer_l1_acc),
        "dst_full_sync_en": repr(compute.dst_full_sync_en),
    }
    return _format_call("ttnn.init_device_compute_kernel_config", arguments, first="device.arch()")


def _format_slices(plan: ConvPlan) -> str:
    axis = "DRAMSliceHeight" if plan.slices[0].axis == "height" else "DRAMSliceWidth"
    arguments = {"slice_type": f"ttnn.Conv2d{axis}", "num_slices": str(len(plan.slices))}
    return _format_call("ttnn.Conv2dSliceConfig", arguments)


def _format_value(name: str, value: Any) -> str:
    if name == "activation" and value != NO_ACTIVATION:
        return f"ttnn.UnaryWithParam(ttnn.UnaryOpType.{value.upper()})"
    if isinstance(value, Mesh):
        return _format_cores(CoreRangeSet.of_rectangle(value.rows, value.cols))
    if name == "output_layout":
        return f"ttnn.{value.name}_LAYOUT"
    return f"ttnn.{type(value).__name__}.{value.name}" if isinstance(value, Enum) else repr(value)


def _format_memory_config(config: MemoryConfig) -> str:
    spec = config.shard_spec
    assert spec is not None
    height, width = spec.shape
    return (
        f"ttnn.MemoryConfig(\n    ttnn.TensorMemoryLayout.{config.memory_layout.name},\n    ttnn.BufferType.L1,\n"
        f"    ttnn.ShardSpec({_format_cores(spec.grid)}, [{height}, {width}], "
        f"ttnn.ShardOrientation.{spec.orientation.name}),\n)"
    )


def _format_cores(cores: CoreRangeSet) -> str:
    ranges = ", ".join(
        f"ttnn.CoreRange(ttnn.CoreCoord({each.start.x}, {each.start.y}), ttnn.CoreCoord({each.end.x}, {each.end.y}))"
        for each in cores.ranges
    )
    return f"ttnn.CoreRangeSet({{{ranges}}})"


def _format_call(name: str, arguments: dict[str, str], first: str = "") -> str:
    lines = [*([f"    {first},"] if first else []), *(f"    {key}={value}," for key, value in arguments.items())]
    return "\n".join([f"{name}(", *lines, ")"])
