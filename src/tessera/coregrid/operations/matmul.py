"""Matrix products of tensors in any memory: `matmul`, `linear`, and convolutions that are matrix products.

The model allocates the buffers of a plan on the cores while the product is computed, and counts the bytes moved;
blocks are not copied one by one. The result is in global memory unless `memory_config` is set, as on the chip.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tessera.coregrid.activations import UnaryWithParam, apply_activation, normalise_activation
from tessera.coregrid.config import ComputeConfig, choose_default_compute
from tessera.coregrid.device.device import Device, check_compute_config
from tessera.coregrid.device.storage import MatrixSpec, write_values
from tessera.coregrid.device.tensors import Tensor, allocate_tensor, move_to_config, to_torch
from tessera.coregrid.execution.matmul import MatrixEngine
from tessera.coregrid.formats import DataType, Layout, float32
from tessera.coregrid.memory_config import DRAM_MEMORY_CONFIG, MemoryConfig
from tessera.coregrid.operations.inputs import choose_device
from tessera.coregrid.planning.matmul import count_batches, plan_matmul
from tessera.coregrid.planning.memory import get_partials_dtype
from tessera.errors import TesseraError


def matmul(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    bias: Tensor | None = None,
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    activation: UnaryWithParam | str | None = None,
    compute_kernel_config: ComputeConfig | None = None,
    device: Device | None = None,
    program_config: Any = None,
    core_grid: Any = None,
) -> Tensor:
    """Return the product of two tensors of matrices, plus a bias, with an activation.

    The output format is `dtype`, by default the format of the first tensor. The activation may be the
    `fused_activation` of `program_config` instead; its other fields and `core_grid` do not change the result.
    """
    fused = getattr(program_config, "fused_activation", None)
    if activation and fused:
        raise TesseraError(
            "a matrix product has one activation", got=f"{activation} and {fused}", do="omit one of them"
        )
    activation = normalise_activation(activation or fused)
    device = choose_device(input_tensor_a, device or input_tensor_b.device())
    left, right = _load(input_tensor_a, transpose_a), _load(input_tensor_b, transpose_b)
    if left.shape[-1] != right.shape[-2]:
        raise TesseraError(
            "the inner dims of a matrix product must be equal", got=f"{tuple(left.shape)} and {tuple(right.shape)}"
        )
    dtype = dtype or input_tensor_a.dtype
    compute = compute_kernel_config or choose_default_compute(input_tensor_a.dtype, input_tensor_b.dtype)
    check_compute_config(device, compute)
    shared = count_batches(tuple(right.shape)) == 1  # all rows are multiplied by one matrix
    shape = (*np.broadcast_shapes(left.shape[:-2], right.shape[:-2]), left.shape[-2], right.shape[-1])
    rows = count_batches(tuple(left.shape)) * left.shape[-2] if shared else left.shape[-2]
    plan = plan_matmul(
        (rows, left.shape[-1], right.shape[-1]),
        (input_tensor_a.dtype, input_tensor_b.dtype, dtype),
        grid=device.grid,
        memory=device.arena.largest_gap,
        batch=1 if shared else count_batches(shape),
        bias=bias is not None,
        partials=get_partials_dtype(dtype, compute),
    )
    buffers = device.arena.allocate(plan.bytes, "blocks of a matrix product", from_bottom=True)
    try:
        values = _multiply(left, right.reshape(right.shape[-2:]) if shared else right, compute, dtype)
        if bias is not None:
            values += to_torch(bias).float().reshape(-1)[: values.shape[-1]]
        # as a convolution: a float32 output is computed without approximations
        apply_activation(values, activation, approximate=compute.math_approx_mode and dtype is not float32)
    finally:
        device.arena.free(buffers)
    output = allocate_tensor(
        device, MatrixSpec.of(shape, dtype, Layout.TILE), shape, DRAM_MEMORY_CONFIG, "product of matrices"
    )
    write_values(output.storage, values.reshape(-1, shape[-1]))
    device.add_moved_bytes(plan.ledger)
    return move_to_config(output, None if memory_config == DRAM_MEMORY_CONFIG else memory_config)


def linear(
    input_tensor: Tensor,
    weight: Tensor,
    *,
    bias: Tensor | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    compute_config: ComputeConfig | None = None,
    compute_kernel_config: ComputeConfig | None = None,
    **options: Any,
) -> Tensor:
    """Multiply the rows of the input by a matrix `(in, out)` and add a bias; `options` as in `matmul`.

    With `transpose_b`, the matrix is `(out, in)`, as in torch.
    """
    return matmul(
        input_tensor,
        weight,
        transpose_a=transpose_a,
        transpose_b=transpose_b,
        bias=bias,
        compute_kernel_config=compute_kernel_config or compute_config,
        **options,
    )


def _load(tensor: Tensor, transpose: bool) -> torch.Tensor:
    values = to_torch(tensor).float()
    if values.ndim < 2:
        raise TesseraError("a matrix product requires tensors of two dims or more", got=tuple(values.shape))
    return values.transpose(-1, -2) if transpose else values


def _multiply(left: torch.Tensor, right: torch.Tensor, compute: ComputeConfig, dtype: DataType) -> torch.Tensor:
    """Multiply float32 matrices with the arithmetic of a core."""
    return MatrixEngine(compute, dtype).multiply(left, right)
