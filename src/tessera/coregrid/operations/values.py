"""Read the values of a tensor for an operation and store its result, with the bytes that both move.

Operations without an algorithm of their own on the shards use these functions: the result is rounded and stored as on
the chip, and the bytes that the cores read and write are counted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from tessera.coregrid.device.device import Device
from tessera.coregrid.device.storage import MatrixSpec, write_values
from tessera.coregrid.device.tensors import Tensor, allocate_tensor, from_torch, to_torch
from tessera.coregrid.formats import DataType, Layout
from tessera.coregrid.memory_config import DRAM_MEMORY_CONFIG, BufferType, MemoryConfig
from tessera.coregrid.planning.ledger import Ledger
from tessera.errors import TesseraError

# Arguments of ttnn's operations that do not change the values of a result.
NO_EFFECT = ("cq_id", "compute_kernel_config", "program_config", "queue_id", "sub_core_grids")


def refuse_unsupported(operation: str, arguments: Mapping[str, Any], ignored: Collection[str] = ()) -> None:
    """Raise an error for an argument that is neither in `NO_EFFECT` nor in `ignored`, unless it is None or empty."""
    for name, value in arguments.items():
        is_empty = value is None or (isinstance(value, list | tuple) and not value)
        if name not in NO_EFFECT and name not in ignored and not is_empty:
            raise TesseraError(f"{operation} does not support the argument {name}", got=value, do="omit it")


def load_values(tensor: Tensor) -> torch.Tensor:
    """Return the values of a tensor as float32, and count the bytes that the cores read."""
    if tensor.is_on_device:
        size = tensor.matrix.rows * tensor.matrix.row_bytes
        in_banks = tensor.storage.in_banks
        tensor.allocation.device.add_moved_bytes(Ledger(global_read=size) if in_banks else Ledger(local=size))
    return to_torch(tensor).float()


def store_result(
    values: torch.Tensor,
    like: Tensor,
    *,
    shape: Sequence[int] | None = None,
    dtype: DataType | None = None,
    layout: Layout | None = None,
    memory_config: MemoryConfig | None = None,
    device: Device | None = None,
) -> Tensor:
    """Store values as a tensor with the format, layout and place of `like`, unless stated otherwise.

    The shards of `like` are kept if the shape is unchanged; another shape is stored interleaved in the same memory.
    """
    dtype, layout = dtype or like.dtype, layout or like.layout
    layout = Layout.TILE if dtype.is_block else layout
    shape = tuple(values.shape if shape is None else shape)
    device = device or like.device()
    if device is None:
        return from_torch(values.reshape(shape), dtype, layout=layout)
    if memory_config is None:
        memory_config = like.memory_config() if like.is_on_device else DRAM_MEMORY_CONFIG
        if memory_config.is_sharded() and shape != like.shape:
            memory_config = DRAM_MEMORY_CONFIG
    matrix = MatrixSpec.of(shape, dtype, layout)
    result = allocate_tensor(device, matrix, shape, memory_config)
    write_values(result.storage, values.reshape(matrix.rows, matrix.columns))
    size = matrix.rows * matrix.row_bytes
    in_banks = memory_config.buffer_type is BufferType.DRAM
    device.add_moved_bytes(Ledger(global_written=size) if in_banks else Ledger(local=size))
    return result
