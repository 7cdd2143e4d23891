"""`conv2d` on a device: plan the call, execute the plan, and leave the output on the cores.

A transposed convolution is a convolution of zero-stuffed images with flipped weights, a linear layer a 1x1 convolution
whose pixels are the rows of the input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from tessera.coregrid.config import ComputeConfig, Conv2dConfig, ShardLayout, SliceConfig
from tessera.coregrid.convolution import Convolution, parse_padding, parse_pair
from tessera.coregrid.device.device import Device
from tessera.coregrid.device.memory_config import DRAM_MEMORY_CONFIG, BufferType, MemoryConfig
from tessera.coregrid.device.storage import ShardedStorage, allocate_storage, copy_matrix, write_values
from tessera.coregrid.device.tensors import (
    Allocation,
    Tensor,
    deallocate,
    from_torch,
    move_to_config,
    reshape,
    to_device,
    to_memory_config,
)
from tessera.coregrid.execution.execute import execute_program, execute_slices
from tessera.coregrid.execution.program import ConvProgram
from tessera.coregrid.execution.weights import ConvOperands
from tessera.coregrid.formats import DataType
from tessera.coregrid.operations.inputs import check_images, choose_device
from tessera.coregrid.operations.resample import insert_zeros
from tessera.coregrid.planning.plan import ConvPlan, explain_fit
from tessera.coregrid.planning.setup import ConvSetup
from tessera.coregrid.planning.slicing import plan_conv2d_call
from tessera.errors import TesseraError


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
    """Convolve images `(N, H, W, C)` with weights `(Co, Ci / groups, Kh, Kw)`; returns `(1, 1, N*Ho*Wo, Co)`.

    `padding` is (height, width) or (top, bottom, left, right). The output stays sharded on the cores unless
    `memory_config` is set. The output format is `dtype`, by default `conv_config.dtype`. With `return_output_dim` and
    `return_weights_and_bias` the result is a list: the output, then `[height, width]`, then `[weights, bias]`, which
    can be passed to later calls.
    """
    conv = Convolution(
        batch=batch_size,
        height=input_height,
        width=input_width,
        in_channels=in_channels,
        out_channels=out_channels,
        kernel=parse_pair("kernel_size", kernel_size),
        stride=parse_pair("stride", stride),
        padding=parse_padding(padding),
        dilation=parse_pair("dilation", dilation),
        groups=groups,
    )
    check_images(input_tensor, (conv.batch, conv.height, conv.width, conv.in_channels), device)
    requested = conv_config or Conv2dConfig()
    # copy the configs: they are keys of cached programs, and the caller may change the originals
    config = replace(requested, dtype=dtype or requested.dtype)
    compute = replace(compute_config or ComputeConfig())
    ready = _prepare_call(conv, input_tensor, device, config, compute, slice_config, bias_tensor is not None)
    operands = ConvOperands(weight_tensor, bias_tensor, config.weights_dtype, device)
    first = ready.programs[0].weights
    try:
        if ready.plan.slices:
            output = _run_in_slices(ready, device, input_tensor, operands, free_input=config.deallocate_activation)
        else:
            program = ready.programs[0]
            output = _run_on_cores(program, device, input_tensor, operands, free_input=config.deallocate_activation)
        operands.free(except_for=first if return_weights_and_bias else None)
        output = move_to_config(output, memory_config)
    except BaseException:
        operands.free()
        raise
    results: list[Any] = [output]
    if return_output_dim:
        results.append(list(conv.output_size))
    if return_weights_and_bias:
        results.append(list(operands.get_prepared(first)))
    return results if len(results) > 1 else output


@dataclass(frozen=True, slots=True)
class _PreparedCall:
    """A plan and its executable programs: one program, or one per slice."""

    plan: ConvPlan
    programs: tuple[ConvProgram, ...]


def _prepare_call(
    conv: Convolution,
    tensor: Tensor,
    device: Device,
    config: Conv2dConfig,
    compute: ComputeConfig,
    slices: SliceConfig | None,
    bias: bool,
) -> _PreparedCall:
    """Plan a `conv2d` call, or return the cached plan of an equal call on this device."""
    input_sharding, in_banks = None, not tensor.is_on_device
    if tensor.is_on_device:
        where = tensor.memory_config()
        in_banks = where.buffer_type is BufferType.DRAM
        input_sharding = ShardLayout(where.memory_layout.value) if where.is_sharded() else None
    key = (conv, config, compute, tensor.dtype, tensor.layout, input_sharding, in_banks, slices, bias)
    if key not in device.programs:
        setup = ConvSetup(
            machine=device.machine,
            config=config,
            compute=compute,
            input_dtype=tensor.dtype,
            input_layout=tensor.layout,
            bias=bias,
        )
        plan = plan_conv2d_call(conv, setup, input_sharding=input_sharding, in_global_memory=in_banks, slices=slices)
        plans = [part.plan for part in plan.slices] or [plan]
        programs = {id(part): ConvProgram.of(part) for part in plans}  # most slices share a plan
        device.programs[key] = _PreparedCall(plan, tuple(programs[id(part)] for part in plans))
    prepared: _PreparedCall = device.programs[key]
    return prepared


def _run_on_cores(
    program: ConvProgram, device: Device, tensor: Tensor, operands: ConvOperands, *, free_input: bool
) -> Tensor:
    """Execute an unsliced convolution, after resharding its input if necessary."""
    plan, released = program.plan, program.plan.config.deallocate_activation
    weights, bias = operands.get_pages(program.weights)
    advice = f"free other tensors; {explain_fit(plan)}"
    in_place = tensor.is_on_device and tensor.memory_config() == program.input and free_input == released
    source = tensor.allocation if in_place else _shard_input(program, device, tensor)
    try:
        if free_input and not in_place:
            deallocate(tensor)
        shards, release = source.storage, source.free if released else None
        assert isinstance(shards, ShardedStorage)
        shards_out = execute_program(program, device, shards, weights, bias, release=release, do=advice)
    finally:
        if not in_place:
            source.free()
    shape = 1, 1, plan.conv.output_sticks, plan.conv.out_channels
    allocation = Allocation(device, program.output, shards_out)
    return Tensor(shape, shards_out.matrix.dtype, shards_out.matrix.layout, allocation=allocation)


def _shard_input(program: ConvProgram, device: Device, tensor: Tensor) -> Allocation:
    """Copy the input from the host or the device into the shards of a program."""
    storage = allocate_storage(device, tensor.matrix, program.input, "input")
    copied = Allocation(device, program.input, storage)
    if tensor.is_on_device:
        device.add_moved_bytes(copy_matrix(tensor.storage, storage))
    else:
        write_values(storage, tensor.host.reshape(tensor.matrix.rows, tensor.matrix.columns))
    return copied


def _run_in_slices(
    ready: _PreparedCall, device: Device, tensor: Tensor, operands: ConvOperands, *, free_input: bool
) -> Tensor:
    """Execute a convolution slice by slice. Input and output are in global memory."""
    source = tensor
    if not tensor.is_on_device:
        source = to_device(tensor, device)
    elif tensor.memory_config() != DRAM_MEMORY_CONFIG:
        source = to_memory_config(tensor, DRAM_MEMORY_CONFIG)
        if free_input:
            deallocate(tensor)
    try:
        return execute_slices(ready.plan, ready.programs, device, source.storage, operands)
    finally:
        if source is not tensor or free_input:
            deallocate(source)


def conv_transpose2d(
    input_tensor: Tensor,
    weight_tensor: Tensor,
    in_channels: int,
    out_channels: int,
    device: Device,
    bias_tensor: Tensor | None = None,
    kernel_size: Sequence[int] = (1, 1),
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    output_padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    batch_size: int = 1,
    input_height: int = 1,
    input_width: int = 1,
    conv_config: Conv2dConfig | None = None,
    groups: int = 1,
    **options: Any,
) -> Any:
    """Compute the transposed convolution of images `(N, H, W, C)` with weights `(Ci, Co / groups, Kh, Kw)`.

    The other arguments, the further keywords `options` and the result are described in `conv2d`.
    """
    sizes = batch_size, input_height, input_width, in_channels
    check_images(input_tensor, sizes, device)
    kernel, apart = parse_pair("kernel_size", kernel_size), parse_pair("dilation", dilation)
    steps = parse_pair("stride", stride)
    extra_padding = parse_pair("output_padding", output_padding)
    sides: list[int] = []
    for axis, (before, after) in enumerate(parse_padding(padding)):
        reach = apart[axis] * (kernel[axis] - 1)
        limit = max(steps[axis], apart[axis])
        if not 0 <= extra_padding[axis] < limit:
            raise TesseraError(
                "output_padding must be less than the larger of stride and dilation",
                got=output_padding,
                allowed=f"0 to {limit - 1}",
            )
        around = reach - before, reach - after + extra_padding[axis]
        if min(around) < 0:
            raise TesseraError(
                "padding must not exceed dilation * (kernel_size - 1)", got=padding, allowed=f"up to {reach}"
            )
        sides += around
    weights = weight_tensor
    if not weights.is_on_device:
        weights = from_torch(transpose_weights(weights.host, groups), weights.dtype, layout=weights.layout)
    spread = insert_zeros(input_tensor, sizes, steps, device)
    if conv_config is not None and conv_config.deallocate_activation:
        deallocate(input_tensor)
    try:
        return conv2d(
            input_tensor=spread,
            weight_tensor=weights,
            in_channels=in_channels,
            out_channels=out_channels,
            device=device,
            bias_tensor=bias_tensor,
            kernel_size=kernel,
            padding=sides,
            dilation=apart,
            batch_size=batch_size,
            input_height=spread.shape[1],
            input_width=spread.shape[2],
            conv_config=conv_config,
            groups=groups,
            **options,
        )
    finally:
        deallocate(spread)


def transpose_weights(weight: torch.Tensor, groups: int = 1) -> torch.Tensor:
    """Convert weights `(Ci, Co / groups, Kh, Kw)` to convolution weights `(Co, Ci / groups, Kh, Kw)`."""
    inputs, outputs, *kernel = weight.shape
    if inputs % groups:
        raise TesseraError("in_channels must be divisible by groups", got=f"{inputs} in_channels, {groups} groups")
    by_group = weight.reshape(groups, inputs // groups, outputs, *kernel).transpose(1, 2)
    return by_group.reshape(groups * outputs, inputs // groups, *kernel).flip(-1, -2)


def linear(
    input_tensor: Tensor,
    weight: Tensor,
    *,
    bias: Tensor | None = None,
    transpose_b: bool = False,
    device: Device | None = None,
    conv_config: Conv2dConfig | None = None,
    compute_config: ComputeConfig | None = None,
    memory_config: MemoryConfig | None = None,
) -> Tensor:
    """Multiply the rows of the input by a matrix `(in, out)` and add a bias.

    With `transpose_b`, the matrix is `(out, in)`, as in torch. `conv_config` sets sharding, formats and activation. The
    weights must be on the host.
    """
    rows, features = input_tensor.matrix.rows, input_tensor.shape[-1]
    matrix = weight.host if transpose_b else weight.host.transpose(-1, -2)
    matrix = matrix.reshape(matrix.shape[-2:])
    if matrix.shape[1] != features:
        raise TesseraError(
            "the weights do not match the input features", got=weight.shape, allowed=f"{features} inputs"
        )
    output: Tensor = conv2d(
        input_tensor=reshape(input_tensor, (1, 1, rows, features)),
        weight_tensor=from_torch(matrix[:, :, None, None], weight.dtype, layout=weight.layout),
        in_channels=features,
        out_channels=matrix.shape[0],
        device=choose_device(input_tensor, device),
        bias_tensor=bias,
        input_height=rows,
        conv_config=conv_config,
        compute_config=compute_config,
        memory_config=memory_config,
    )
    return reshape(output, (*input_tensor.shape[:-1], matrix.shape[0]))
