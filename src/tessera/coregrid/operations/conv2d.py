"""`conv2d` on a device: planned for the call, executed as planned, its output on the cores that made it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tessera.coregrid.config import ComputeConfig, Conv2dConfig, SliceConfig
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.device.device import Device
from tessera.coregrid.device.memory_config import DRAM_MEMORY_CONFIG, BufferType, MemoryConfig
from tessera.coregrid.device.placement import place
from tessera.coregrid.device.storage import Shards, copy, fill
from tessera.coregrid.device.tensors import Placed, Tensor, deallocate, moved_to, to_device, to_memory_config
from tessera.coregrid.execution.execute import execute
from tessera.coregrid.execution.prepared import Operands
from tessera.coregrid.execution.program import Program
from tessera.coregrid.execution.sliced import execute_slices
from tessera.coregrid.formats import DataType
from tessera.coregrid.operations.images import check_images, paddings, pair
from tessera.coregrid.planning.choose import plan_call
from tessera.coregrid.planning.knobs import advice
from tessera.coregrid.planning.plan import ConvPlan, Setup
from tessera.coregrid.planning.sharding import ShardLayout


def conv2d(
    input_tensor: Tensor,
    weight_tensor: Tensor,
    in_channels: int,
    out_channels: int,
    device: Device,
    bias_tensor: Tensor | None = None,
    kernel_size: Sequence[int] = (1, 1),
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    batch_size: int = 1,
    input_height: int = 1,
    input_width: int = 1,
    conv_config: Conv2dConfig | None = None,
    compute_config: ComputeConfig | None = None,
    groups: int = 1,
    memory_config: MemoryConfig | None = None,
    slice_config: SliceConfig | None = None,
    return_weights_and_bias: bool = False,
    return_output_dim: bool = False,
    dtype: DataType | None = None,
) -> Any:
    """Convolve images `(N, H, W, C)` with weights `(Co, Ci / groups, Kh, Kw)`; gives `(1, 1, N*Ho*Wo, Co)`.

    `padding` is (height, width) or (top, bottom, left, right). The output stays in shards on the cores, unless
    `memory_config` says where it goes; its format is `dtype`, or else the config's. With `return_output_dim` and
    `return_weights_and_bias` the result is a list: the output, then `[height, width]`, then `[weights, bias]`, which
    may be passed again.
    """
    conv = Convolution(
        batch=batch_size,
        height=input_height,
        width=input_width,
        in_channels=in_channels,
        out_channels=out_channels,
        kernel=pair("kernel_size", kernel_size),
        stride=pair("stride", stride),
        padding=paddings(padding),
        dilation=pair("dilation", dilation),
        groups=groups,
    )
    check_images(input_tensor, (conv.batch, conv.height, conv.width, conv.in_channels), device)
    asked = conv_config or Conv2dConfig()
    # copies, since a program is kept by them, and the caller may assign to theirs
    config = replace(asked, dtype=dtype or asked.dtype)
    compute = replace(compute_config or ComputeConfig())
    ready = _ready(conv, input_tensor, device, config, compute, slice_config, bias_tensor is not None)
    operands = Operands(weight_tensor, bias_tensor, config.weights_dtype, device)
    first = ready.programs[0].weights
    try:
        if ready.plan.slices:
            output = _in_slices(ready, device, input_tensor, operands, frees=config.deallocate_activation)
        else:
            program = ready.programs[0]
            output = _on_cores(program, device, input_tensor, operands, frees=config.deallocate_activation)
        operands.free(but=first if return_weights_and_bias else None)
        output = moved_to(output, memory_config)
    except BaseException:
        operands.free()
        raise
    found: list[Any] = [output]
    if return_output_dim:
        found.append(list(conv.output))
    if return_weights_and_bias:
        found.append(list(operands.of(first)))
    return found if len(found) > 1 else output


@dataclass(frozen=True, slots=True)
class _Ready:
    """A plan and its programs: one, or one for every slice."""

    plan: ConvPlan
    programs: tuple[Program, ...]


def _ready(
    conv: Convolution,
    given: Tensor,
    device: Device,
    config: Conv2dConfig,
    compute: ComputeConfig,
    slices: SliceConfig | None,
    bias: bool,
) -> _Ready:
    """Plan a call, or find the plan of a call like it that this device made before."""
    lies, in_banks = None, not given.is_on_device
    if given.is_on_device:
        where = given.memory_config()
        in_banks = where.buffer_type is BufferType.DRAM
        lies = ShardLayout(where.memory_layout.value) if where.is_sharded() else None
    key = (conv, config, compute, given.dtype, given.layout, lies, in_banks, slices, bias)
    if key not in device.programs:
        setup = Setup(
            machine=device.machine,
            config=config,
            compute=compute,
            input_dtype=given.dtype,
            input_layout=given.layout,
            bias=bias,
        )
        plan = plan_call(conv, setup, lies=lies, in_global_memory=in_banks, slices=slices)
        plans = [part.plan for part in plan.slices] or [plan]
        alike = {id(part): Program.of(part) for part in plans}  # most slices share a plan
        device.programs[key] = _Ready(plan, tuple(alike[id(part)] for part in plans))
    found: _Ready = device.programs[key]
    return found


def _on_cores(program: Program, device: Device, given: Tensor, operands: Operands, *, frees: bool) -> Tensor:
    """Run a convolution whose shards fit, after its input is brought to where the plan wants it."""
    plan, released = program.plan, program.plan.config.deallocate_activation
    weights, bias = operands.pages(program.weights)
    knobs = f"free other tensors; {advice(plan)}"
    if given.is_on_device and given.memory_config() == program.input and frees == released:
        source = given.storage
        assert isinstance(source, Shards)
        release = (lambda: deallocate(given)) if frees else None
        made = execute(program, device, source, weights, bias, release=release, do=knobs)
    else:
        copied = _brought(program, device, given)
        try:
            if frees:
                deallocate(given)
            release = copied.free if released else None
            shards = copied.storage
            assert isinstance(shards, Shards)
            made = execute(program, device, shards, weights, bias, release=release, do=knobs)
        finally:
            copied.free()
    shape = 1, 1, plan.conv.outputs, plan.conv.out_channels
    return Tensor(shape, made.matrix.dtype, made.matrix.layout, placed=Placed(device, program.output, made))


def _brought(program: Program, device: Device, given: Tensor) -> Placed:
    """The input in shards as a plan wants it, from the host or from elsewhere on the device."""
    storage = place(device, given.matrix, program.input, "input")
    copied = Placed(device, program.input, storage)
    if given.is_on_device:
        device.count(copy(given.storage, storage))
    else:
        fill(storage, given.host.reshape(given.matrix.rows, given.matrix.columns))
    return copied


def _in_slices(ready: _Ready, device: Device, given: Tensor, operands: Operands, *, frees: bool) -> Tensor:
    """Run a convolution slice by slice, with its input in global memory."""
    source = given
    if not given.is_on_device:
        source = to_device(given, device)
    elif given.memory_config() != DRAM_MEMORY_CONFIG:
        source = to_memory_config(given, DRAM_MEMORY_CONFIG)
        if frees:
            deallocate(given)
    try:
        return execute_slices(ready.plan, ready.programs, device, source.storage, operands)
    finally:
        if source is not given or frees:
            deallocate(source)
