"""Addition of two device tensors, shard by shard, with optional activations (the end of a residual block)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tessera.coregrid.activations import apply_activation, normalise_activation
from tessera.coregrid.device.tensors import (
    Tensor,
    allocate_tensor,
    deallocate,
    get_sharded_storage,
    move_to_config,
    to_memory_config,
)
from tessera.coregrid.memory_config import L1_HEIGHT_SHARDED_MEMORY_CONFIG
from tessera.coregrid.operations.inputs import write_shard
from tessera.errors import TesseraError


def add(input_tensor_a: Tensor, input_tensor_b: Tensor, *, activations: Sequence[str] = ()) -> Tensor:
    """Return the sum of two tensors in the memory config of the first. Reshards the second if necessary.

    Tensors in global memory are height-sharded for the addition, and the sum is moved back to global memory.
    """
    _check_operands(input_tensor_a, input_tensor_b, activations)
    allocation = input_tensor_a.allocation
    if not input_tensor_a.is_sharded():
        resharded = to_memory_config(input_tensor_a, L1_HEIGHT_SHARDED_MEMORY_CONFIG)
        try:
            add_(resharded, input_tensor_b, activations=activations)
        except BaseException:
            deallocate(resharded)
            raise
        return move_to_config(resharded, input_tensor_a.memory_config())
    total = allocate_tensor(allocation.device, input_tensor_a.matrix, input_tensor_a.shape, allocation.config, "sum")
    try:
        _add_shards(input_tensor_a, input_tensor_b, total, activations)
    except BaseException:
        deallocate(total)
        raise
    return total


def add_(input_tensor_a: Tensor, input_tensor_b: Tensor, *, activations: Sequence[str] = ()) -> Tensor:
    """Add the second tensor to the first in place. The first tensor must be sharded."""
    _check_operands(input_tensor_a, input_tensor_b, activations)
    if not input_tensor_a.is_sharded():
        raise TesseraError("add_ requires a sharded tensor", got=input_tensor_a, do="use `add`")
    _add_shards(input_tensor_a, input_tensor_b, input_tensor_a, activations)
    return input_tensor_a


@torch.no_grad()
def _add_shards(left: Tensor, right: Tensor, total: Tensor, activations: Sequence[str]) -> None:
    config = left.memory_config()
    resharded = right if right.memory_config() == config else to_memory_config(right, config)
    try:
        here, there, into = (get_sharded_storage(tensor) for tensor in (left, resharded, total))
        for row in range(here.down):
            rows = slice(0, len(here.get_rows(row)))
            for column in range(here.across):
                values = here.read_shard_values(row, column)[rows].float() + there.read_shard_values(row, column)[rows]
                for name in activations:
                    apply_activation(values, name)
                write_shard(into, row, column, values)
    finally:
        if resharded is not right:
            deallocate(resharded)


def _check_operands(left: Tensor, right: Tensor, activations: Sequence[str]) -> None:
    if left.shape != right.shape:
        raise TesseraError("add requires tensors of the same shape", got=f"{left.shape} and {right.shape}")
    if left.allocation.device is not right.allocation.device:
        raise TesseraError(
            "add requires tensors on the same device", got=f"{left.allocation.device} and {right.allocation.device}"
        )
    for name in activations:
        normalise_activation(name)
