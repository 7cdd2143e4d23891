"""The sum of two tensors, shard by shard where they lie, with what may follow it: the end of a residual block."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tessera.coregrid.device.storage import Shards
from tessera.coregrid.device.tensors import Tensor, deallocate, empty, moved_to, to_memory_config
from tessera.coregrid.execution.activations import ACTIVATIONS, activate
from tessera.coregrid.operations.sharded import HEIGHT, put
from tessera.errors import TesseraError


def add(input_tensor_a: Tensor, input_tensor_b: Tensor, *, activations: Sequence[str] = ()) -> Tensor:
    """The sum, where the first tensor lies; the second is brought there if it lies elsewhere.

    What lies in global memory comes into that of the cores for it, height-sharded, and its sum goes back.
    """
    _check(input_tensor_a, input_tensor_b, activations)
    placed = input_tensor_a.placed
    if not input_tensor_a.is_sharded():
        brought = to_memory_config(input_tensor_a, HEIGHT)
        try:
            add_(brought, input_tensor_b, activations=activations)
        except BaseException:
            deallocate(brought)
            raise
        return moved_to(brought, input_tensor_a.memory_config())
    made = empty(placed.device, input_tensor_a.matrix, input_tensor_a.shape, placed.config, "sum")
    try:
        _sum(input_tensor_a, input_tensor_b, made, activations)
    except BaseException:
        deallocate(made)
        raise
    return made


def add_(input_tensor_a: Tensor, input_tensor_b: Tensor, *, activations: Sequence[str] = ()) -> Tensor:
    """The sum in the place of the first tensor."""
    _check(input_tensor_a, input_tensor_b, activations)
    if not input_tensor_a.is_sharded():
        raise TesseraError("a sum takes the place of a sharded tensor", got=input_tensor_a, do="use `add`")
    _sum(input_tensor_a, input_tensor_b, input_tensor_a, activations)
    return input_tensor_a


@torch.no_grad()
def _sum(left: Tensor, right: Tensor, made: Tensor, activations: Sequence[str]) -> None:
    beside = right if right.memory_config() == left.memory_config() else to_memory_config(right, left.memory_config())
    try:
        here, there, into = left.storage, beside.storage, made.storage
        assert isinstance(here, Shards)
        assert isinstance(there, Shards)
        assert isinstance(into, Shards)
        for row in range(here.down):
            rows = slice(0, len(here.rows(row)))
            for column in range(here.across):
                found = here.numbers(row, column)[rows].float() + there.numbers(row, column)[rows]
                for name in activations:
                    activate(found, name)
                put(into, row, column, found)
    finally:
        if beside is not right:
            deallocate(beside)


def _check(left: Tensor, right: Tensor, activations: Sequence[str]) -> None:
    if left.shape != right.shape:
        raise TesseraError("tensors of one shape are added", got=f"{left.shape} and {right.shape}")
    if left.placed.device is not right.placed.device:
        raise TesseraError("tensors of one device are added", got=f"{left.placed.device} and {right.placed.device}")
    for name in activations:
        if name and name not in ACTIVATIONS:
            raise TesseraError("unknown activation", got=name, allowed=ACTIVATIONS)
