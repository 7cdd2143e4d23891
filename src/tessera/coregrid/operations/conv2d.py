"""`conv2d` on a device: plan the call, execute the plan, and leave the output on the cores.

A transposed convolution is a convolution of zero-stuffed images with flipped weights. A 1x1 convolution of an
interleaved input is a matrix product, and windows that do not overlap are folded into one pixel, as on the chip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from tessera.coregrid.config import ComputeConfig, Conv2dConfig, SliceConfig, choose_default_compute
from tessera.coregrid.convolution import Convolution, parse_padding, parse_pair
from tessera.coregrid.device.device import Device, check_compute_config
from tessera.coregrid.device.storage import ShardedStorage, allocate_storage, copy_matrix, write_values
from tessera.coregrid.device.tensors import (
    Allocation,
    Tensor,
    deallocate,
    from_torch,
    move_to_config,
    reshape,
    to_device,
    to_layout,
    to_memory_config,
    to_torch,
)
from tessera.coregrid.execution.execute import execute_program, execute_slices
from tessera.coregrid.execution.program import ConvProgram
from tessera.coregrid.execution.weights import ConvOperands, PreparedTensor, build_weight_matrix
from tessera.coregrid.formats import DataType, Layout
from tessera.coregrid.memory_config import DRAM_MEMORY_CONFIG, BufferType, MemoryConfig
from tessera.coregrid.operations.inputs import check_images, release_activation
from tessera.coregrid.operations.matmul import matmul
from tessera.coregrid.operations.resample import insert_zeros
from tessera.coregrid.operations.shapes import fold
from tessera.coregrid.planning.placement import place_input, resolve_formats
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
    config = resolve_formats(config, input_tensor.dtype, weight_tensor.dtype)
    compute = replace(compute_config or choose_default_compute(input_tensor.dtype, config.weights_dtype))
    check_compute_config(device, compute)
    if is_folded(conv, config, input_tensor):
        return _convolve_folded(
            conv,
            input_tensor,
            weight_tensor,
            device,
            {
                "bias_tensor": bias_tensor,
                "conv_config": replace(config, enable_kernel_stride_folding=False),
                "compute_config": compute,
                "memory_config": memory_config,
                "slice_config": slice_config,
                "return_weights_and_bias": return_weights_and_bias,
                "return_output_dim": return_output_dim,
            },
        )
    if config.enable_kernel_stride_folding:
        raise TesseraError(
            "enable_kernel_stride_folding requires windows that do not overlap, of images in global memory",
            got=f"kernel {conv.kernel}, stride {conv.stride}, {conv.groups} groups, {input_tensor}",
            do="set it to None",
        )
    if conv.is_matmul and config.shard_layout is None and not input_tensor.is_sharded():
        multiplied, operands_used = _convolve_by_matmul(
            conv, input_tensor, weight_tensor, bias_tensor, device, config, compute, memory_config
        )
        return _build_results(conv, multiplied, operands_used, return_output_dim, return_weights_and_bias)
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
    prepared = operands.get_prepared(first) if return_weights_and_bias else (weight_tensor, bias_tensor)
    return _build_results(conv, output, prepared, return_output_dim, return_weights_and_bias)


def _build_results(
    conv: Convolution, output: Tensor, operands: Sequence[Tensor | None], with_size: bool, with_operands: bool
) -> Any:
    """Return the output, or a list of the output, its height and width, and the prepared weights and bias."""
    results: list[Any] = [output]
    if with_size:
        results.append(list(conv.output_size))
    if with_operands:
        results.append(list(operands))
    return results if len(results) > 1 else output


def _convolve_by_matmul(
    conv: Convolution,
    tensor: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    device: Device,
    config: Conv2dConfig,
    compute: ComputeConfig,
    memory_config: MemoryConfig | None,
) -> tuple[Tensor, tuple[Tensor, Tensor | None]]:
    """Compute a 1x1 convolution of an interleaved input as one matrix product; return output, weights and bias."""
    if isinstance(weight, MatmulWeights):
        if tuple(weight.shape[-2:]) != (conv.in_channels, conv.out_channels):
            raise TesseraError(
                "the prepared weights do not match the convolution",
                got=tuple(weight.shape[-2:]),
                allowed=f"{(conv.in_channels, conv.out_channels)}",
            )
    else:
        _check_weights(weight, conv)
        matrix = build_weight_matrix(to_torch(weight).float(), conv.groups)
        matrix = torch.nn.functional.pad(matrix, (0, 0, 0, conv.in_channels - len(matrix)))
        weight = MatmulWeights.upload(matrix, config.weights_dtype, device)
    if bias is not None and bias.matrix.columns * bias.matrix.rows != conv.out_channels:
        raise TesseraError(
            "the bias must have one number per output channel",
            got=bias.shape,
            allowed=f"(1, 1, 1, {conv.out_channels})",
        )
    if bias is not None and not isinstance(bias, MatmulWeights):
        bias = MatmulWeights.upload(to_torch(bias).float().reshape(1, -1), config.weights_dtype, device)
    output = matmul(
        reshape(tensor, (1, 1, conv.input_sticks, conv.in_channels)),
        weight,
        bias=bias,
        dtype=config.dtype,
        activation=config.activation,
        compute_kernel_config=compute,
        device=device,
    )
    if config.output_layout is not output.layout:
        output = to_layout(output, config.output_layout)
    if config.deallocate_activation:
        release_activation(tensor)
    return move_to_config(output, None if memory_config == DRAM_MEMORY_CONFIG else memory_config), (weight, bias)


def _check_weights(weight: Tensor, conv: Convolution) -> None:
    """Raise an error unless weights have the shape of a convolution; images may have padded channels."""
    outputs, inputs, kernel = conv.out_channels, conv.in_channels // conv.groups, conv.kernel
    narrow = conv.groups == 1 and len(weight.shape) == 4 and weight.shape[1] < inputs
    if tuple(weight.shape) != (outputs, weight.shape[1] if narrow else inputs, *kernel):
        raise TesseraError(
            "the weights do not match the convolution", got=weight.shape, allowed=f"{(outputs, inputs, *kernel)}"
        )


class MatmulWeights(Tensor):
    """Weights or bias of a matrix product in global memory."""

    @classmethod
    def upload(cls, matrix: torch.Tensor, dtype: DataType, device: Device) -> MatmulWeights:
        """Copy a matrix to the memory banks in tiles."""
        tensor = from_torch(matrix[None, None], dtype, layout=Layout.TILE, device=device)
        return cls(tensor.shape, dtype, Layout.TILE, allocation=tensor.allocation)


def is_folded(conv: Convolution, config: Conv2dConfig, tensor: Tensor) -> bool:
    """Return whether the chip computes a convolution as a matmul of folded images: windows that do not overlap."""
    if config.enable_kernel_stride_folding is False or conv.groups > 1:
        return False
    (top, bottom), (left, right) = conv.padding
    sizes = conv.height + top + bottom, conv.width + left + right
    if conv.kernel != conv.stride or conv.kernel == (1, 1) or conv.dilation != (1, 1):
        return False
    if sizes[0] % conv.stride[0] or sizes[1] % conv.stride[1]:
        return False
    padded = top + bottom + left + right > 0
    if not tensor.is_on_device or tensor.memory_config() == DRAM_MEMORY_CONFIG:
        return tensor.layout is Layout.ROW_MAJOR or not padded
    return False


def _convolve_folded(conv: Convolution, tensor: Tensor, weight: Tensor, device: Device, options: dict[str, Any]) -> Any:
    """Fold every window into the channels of one pixel, and convolve with a 1x1 kernel."""
    (top, bottom), (left, right) = conv.padding
    images = reshape(tensor, (conv.batch, conv.height, conv.width, conv.in_channels))
    folded = fold(
        images if images.is_on_device else to_device(images, device), *conv.stride, padding=(top, bottom, left, right)
    )
    channels = folded.shape[-1]
    if not weight.is_on_device:
        _check_weights(weight, conv)
        kernels = to_torch(weight).float()
        missing = conv.in_channels - kernels.shape[1]
        kernels = torch.nn.functional.pad(kernels, (0, 0, 0, 0, 0, missing)).permute(0, 2, 3, 1)
        weight = from_torch(kernels.reshape(conv.out_channels, -1, 1, 1), weight.dtype)
    height, width = conv.output_size
    return conv2d(
        folded,
        weight,
        channels,
        conv.out_channels,
        device,
        batch_size=conv.batch,
        input_height=height,
        input_width=width,
        **options,
    )


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
    where = tensor.memory_config() if tensor.is_on_device else None
    in_banks = where is None or where.buffer_type is BufferType.DRAM
    key = (conv, config, compute, tensor.dtype, tensor.layout, where, slices, bias)
    if key not in device.programs:
        setup = ConvSetup(
            machine=device.machine,
            config=config,
            compute=compute,
            input_dtype=tensor.dtype,
            input_layout=tensor.layout,
            bias=bias,
        )
        setup = place_input(conv, setup, where)
        plan = plan_conv2d_call(conv, setup, in_global_memory=in_banks, slices=slices)
        if not (plan.slices or plan.setup.copies_input) and ConvProgram.of(plan).input != where:  # resharded
            plan = plan_conv2d_call(conv, replace(setup, copies_input=True), slices=slices)
        plans = [part.plan for part in plan.slices] or [plan]
        programs = {id(part): ConvProgram.of(part) for part in plans}  # most slices share a plan
        device.programs[key] = _PreparedCall(plan, tuple(programs[id(part)] for part in plans))
    prepared: _PreparedCall = device.programs[key]
    return prepared


def _run_on_cores(
    program: ConvProgram, device: Device, tensor: Tensor, operands: ConvOperands, *, free_input: bool
) -> Tensor:
    """Execute an unsliced convolution, after resharding its input if necessary."""
    plan = program.plan
    weights, bias = operands.get_pages(program.weights)
    advice = f"free other tensors; {explain_fit(plan)}"
    copies = plan.setup.copies_input
    in_place = tensor.is_on_device and tensor.memory_config() == program.input and not copies
    source = tensor.allocation if in_place else _shard_input(program, device, tensor)
    try:
        if free_input and not in_place:
            release_activation(tensor)
        shards, release = source.storage, source.free if free_input or copies else None
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
            release_activation(tensor)
    try:
        return execute_slices(ready.plan, ready.programs, device, source.storage, operands)
    finally:
        if source is not tensor:
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
    if not isinstance(weights, MatmulWeights | PreparedTensor):
        weights = from_torch(transpose_weights(to_torch(weights), groups), weights.dtype, layout=weights.layout)
    spread = insert_zeros(input_tensor, sizes, steps, device)
    if conv_config is not None and conv_config.deallocate_activation:
        release_activation(input_tensor)
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
