"""Tensors on the host and on a device, transfers between host and device, and resharding."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import prod

import torch

from tessera.coregrid.device.device import Device
from tessera.coregrid.device.storage import (
    MatrixSpec,
    ShardedStorage,
    Storage,
    allocate_storage,
    complete_config,
    copy_matrix,
    read_values,
    write_values,
)
from tessera.coregrid.formats import DTYPES, TILE_SIZE, DataType, Layout, bfloat16, float32, round_values
from tessera.coregrid.memory_config import DRAM_MEMORY_CONFIG, MemoryConfig
from tessera.coregrid.planning.ledger import Ledger
from tessera.errors import TesseraError


class Tensor:
    """A tensor with a number format and a layout, on the host or on a device.

    Tensors may share one allocation (see `reshape`). Deallocating a tensor deallocates all tensors that share it. The
    memory is also freed when the last of them is deleted.
    """

    def __init__(
        self,
        shape: Sequence[int],
        dtype: DataType,
        layout: Layout,
        *,
        host: torch.Tensor | None = None,
        allocation: Allocation | None = None,
    ) -> None:
        assert (host is None) != (allocation is None)
        self.shape, self.dtype, self.layout = tuple(shape), dtype, layout
        self._host, self._allocation = host, allocation

    @property
    def is_on_device(self) -> bool:
        return self._allocation is not None

    @property
    def host(self) -> torch.Tensor:
        """The values of a host tensor. Raises an error for a device tensor."""
        if self._host is None:
            raise TesseraError("the tensor is on a device", got=self, do="use from_device or to_torch")
        return self._host

    @property
    def allocation(self) -> Allocation:
        """The memory of a device tensor. Raises an error if the tensor was deallocated or the device is closed."""
        if self._allocation is None:
            raise TesseraError("the tensor is on the host", got=self, do="use to_device")
        _ = self._allocation.device.arena  # raises if the device is closed
        if self._allocation.freed:
            raise TesseraError("the tensor was deallocated", got=self, do="create it again, or deallocate it later")
        return self._allocation

    @property
    def storage(self) -> Storage:
        return self.allocation.storage

    def device(self) -> Device | None:
        return None if self._allocation is None else self._allocation.device

    def memory_config(self) -> MemoryConfig:
        return self.allocation.config

    def is_sharded(self) -> bool:
        return self._allocation is not None and self._allocation.config.is_sharded()

    def is_allocated(self) -> bool:
        return self._host is not None or (self._allocation is not None and not self._allocation.freed)

    @property
    def matrix(self) -> MatrixSpec:
        """Rows, columns, format and layout of the matrix that stores the tensor."""
        return MatrixSpec.of(self.shape, self.dtype, self.layout)

    def with_shape(self, shape: Sequence[int]) -> Tensor:
        """Return a tensor of shape `shape` that shares the memory of this tensor. The last dim must be unchanged."""
        return Tensor(shape, self.dtype, self.layout, host=self._host, allocation=self._allocation)

    @property
    def padded_shape(self) -> tuple[int, ...]:
        """The shape including the padding to whole tiles."""
        if self.layout is not Layout.TILE:
            return self.shape
        *leading, rows, columns = (1, *self.shape) if len(self.shape) < 2 else self.shape
        return (*leading, -(-rows // TILE_SIZE) * TILE_SIZE, -(-columns // TILE_SIZE) * TILE_SIZE)

    def get_layout(self) -> Layout:
        return self.layout

    def get_dtype(self) -> DataType:
        return self.dtype

    def cpu(self, *_: object, **__: object) -> Tensor:
        """Return the tensor on the host."""
        return from_device(self) if self.is_on_device else self

    def to(self, target: Device | Layout, memory_config: MemoryConfig | None = None) -> Tensor:
        """Return the tensor on a device, or in another layout."""
        return to_layout(self, target) if isinstance(target, Layout) else to_device(self, target, memory_config)

    def to_torch(self, **_: object) -> torch.Tensor:
        """Return the values as a torch tensor."""
        return to_torch(self)

    def reshape(self, *shape: int | Sequence[int]) -> Tensor:
        """Return the tensor with another shape."""
        sizes = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        return reshape(self, sizes)  # type: ignore[arg-type]

    def deallocate(self, force: bool = True) -> None:
        """Free the memory of the tensor. `force` has no effect."""
        deallocate(self)

    def __repr__(self) -> str:
        where = "host" if self._allocation is None else f"{self._allocation.config.memory_layout.name.lower()}"
        return f"Tensor({'x'.join(map(str, self.shape))}, {self.dtype}, {self.layout.value}, {where})"


class Allocation:
    """Memory on a device, shared by all tensors that refer to it until it is freed."""

    def __init__(self, device: Device, config: MemoryConfig, storage: Storage) -> None:
        self.device, self.config, self.storage, self.freed = device, config, storage, False
        self.trace_count = len(device.traces)  # traces that had begun when the memory was allocated

    def free(self) -> None:
        if not self.freed:
            self.freed = True
            self.storage.free()

    def __del__(self) -> None:
        """Free the memory with the last tensor that refers to it."""
        if not sys.is_finalizing() and self.device.is_open:
            self.free()


def from_torch(
    tensor: torch.Tensor,
    dtype: DataType | None = None,
    *,
    layout: Layout | None = None,
    device: Device | None = None,
    memory_config: MemoryConfig | None = None,
    mesh_mapper: object = None,
) -> Tensor:
    """Convert a torch tensor to a `Tensor`, rounded to `dtype`. The result is on the host unless `device` is set.

    `mesh_mapper` has no effect, because a machine has one device.
    """
    if dtype is None:
        dtype = bfloat16 if tensor.dtype == torch.bfloat16 else float32
    if dtype not in DTYPES.values():
        raise TesseraError("unknown dtype", got=dtype, allowed=DTYPES)
    if layout is None:
        layout = Layout.TILE if dtype.is_block else Layout.ROW_MAJOR
    if dtype.is_block and layout is not Layout.TILE:
        raise TesseraError("block formats require the tile layout", got=dtype, do="use layout=TILE_LAYOUT")
    if not tensor.is_floating_point():
        raise TesseraError("device tensors must be floating point", got=tensor.dtype)
    host = round_values(tensor.detach(), dtype).to(dtype.torch).contiguous()
    result = Tensor(tensor.shape, dtype, layout, host=host)
    return result if device is None else to_device(result, device, memory_config)


def to_torch(tensor: Tensor, *, mesh_composer: object = None, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return the values as a torch tensor: bfloat16 unchanged, all other formats as float32, unless `dtype` is set.

    `mesh_composer` has no effect, because a machine has one device.
    """
    if dtype is not None:
        return to_torch(tensor).to(dtype)
    if not tensor.is_on_device:
        return tensor.host.clone()
    return read_values(tensor.storage).reshape(tensor.shape)


def to_device(tensor: Tensor, device: Device, memory_config: MemoryConfig | None = None) -> Tensor:
    """Copy a host tensor to a device; by default interleaved over the device's memory banks."""
    matrix = tensor.matrix
    result = allocate_tensor(device, matrix, tensor.shape, memory_config or DRAM_MEMORY_CONFIG)
    write_values(result.storage, tensor.host.reshape(matrix.rows, matrix.columns))
    return result


def from_device(tensor: Tensor) -> Tensor:
    """Copy a device tensor to the host."""
    return Tensor(tensor.shape, tensor.dtype, tensor.layout, host=to_torch(tensor))


def to_memory_config(tensor: Tensor, memory_config: MemoryConfig, dtype: DataType | None = None) -> Tensor:
    """Copy a device tensor to another memory config (and format) on the same device. The source stays allocated."""
    if dtype is not None and dtype is not tensor.dtype:
        return to_memory_config(typecast(tensor, dtype), memory_config)
    device = tensor.allocation.device
    result = allocate_tensor(device, tensor.matrix, tensor.shape, memory_config)
    device.add_moved_bytes(copy_matrix(tensor.storage, result.storage))
    return result


def move_to_config(tensor: Tensor, memory_config: MemoryConfig | None) -> Tensor:
    """Move a tensor to a memory config; None leaves it unchanged. The source is freed even if the move fails."""
    if memory_config is None:
        return tensor
    try:
        return to_memory_config(tensor, memory_config)
    finally:
        deallocate(tensor)


def to_layout(
    tensor: Tensor, layout: Layout, dtype: DataType | None = None, memory_config: MemoryConfig | None = None
) -> Tensor:
    """Convert a tensor to row-major or tiles, and to a format. On a device, the result is a new tensor.

    The result has the memory config of the tensor, unless `memory_config` is set.
    """
    if dtype is not None and dtype is not tensor.dtype:
        source = to_layout(tensor, Layout.TILE) if dtype.is_block else tensor
        return to_layout(typecast(source, dtype), layout, memory_config=memory_config)
    if memory_config is not None and tensor.is_on_device:
        converted = to_layout(tensor, layout)
        return (
            to_memory_config(tensor, memory_config) if converted is tensor else move_to_config(converted, memory_config)
        )
    if tensor.is_on_device and tensor.layout is layout:
        return tensor
    if tensor.dtype.is_block and layout is not Layout.TILE:
        raise TesseraError(
            "block formats require the tile layout", got=tensor.dtype, do="use typecast to bfloat16 first"
        )
    if not tensor.is_on_device:
        return Tensor(tensor.shape, tensor.dtype, layout, host=tensor.host)
    allocation = tensor.allocation
    matrix = MatrixSpec.of(tensor.shape, tensor.dtype, layout)
    result = allocate_tensor(allocation.device, matrix, tensor.shape, allocation.config)
    allocation.device.add_moved_bytes(copy_matrix(allocation.storage, result.storage))
    return result


def typecast(tensor: Tensor, dtype: DataType) -> Tensor:
    """Round a tensor to another format. On a device, the result is a new tensor with the same memory config."""
    layout = Layout.TILE if dtype.is_block else tensor.layout
    if not tensor.is_on_device:
        return from_torch(tensor.host.float(), dtype, layout=layout)
    allocation = tensor.allocation
    matrix = MatrixSpec.of(tensor.shape, dtype, layout)
    result = allocate_tensor(allocation.device, matrix, tensor.shape, allocation.config)
    write_values(result.storage, read_values(allocation.storage))
    return result


def deallocate(tensor: Tensor, force: bool = True) -> None:
    """Free the memory of a device tensor. Repeated calls have no effect, and neither has `force`."""
    if tensor._allocation is not None and tensor._allocation.device.is_open:
        tensor._allocation.free()


def reshape(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """Reshape a tensor; one entry may be -1. If the last dim changes, the result is a copy in global memory."""
    shape = tuple(shape)
    total = prod(tensor.shape)
    if shape.count(-1) == 1:
        rest = -prod(shape)
        shape = tuple(total // rest if size == -1 else size for size in shape)
    if prod(shape) != total:
        raise TesseraError("reshape must keep the number of values", got=shape, allowed=f"shapes of {total} values")
    if not tensor.is_on_device:
        return Tensor(shape, tensor.dtype, tensor.layout, host=tensor.host.reshape(shape))
    if shape[-1] == tensor.shape[-1]:
        return tensor.with_shape(shape)
    allocation = tensor.allocation
    matrix = MatrixSpec.of(shape, tensor.dtype, tensor.layout)
    result = allocate_tensor(allocation.device, matrix, shape, DRAM_MEMORY_CONFIG)
    write_values(result.storage, read_values(allocation.storage).reshape(matrix.rows, matrix.columns))
    read = tensor.matrix.rows * tensor.matrix.row_bytes if allocation.storage.in_banks else 0
    allocation.device.add_moved_bytes(Ledger(global_read=read, global_written=matrix.rows * matrix.row_bytes))
    return result


def get_sharded_storage(tensor: Tensor) -> ShardedStorage:
    """Return the storage of a sharded tensor. Raises an error for other tensors."""
    storage = tensor.storage
    if not isinstance(storage, ShardedStorage):
        raise TesseraError(
            "the operation requires a sharded tensor", got=tensor, do="shard the tensor with to_memory_config"
        )
    return storage


def allocate_tensor(
    device: Device, matrix: MatrixSpec, shape: Sequence[int], config: MemoryConfig, label: str = "tensor"
) -> Tensor:
    """Allocate an uninitialised tensor on a device."""
    config = complete_config(config, matrix, device.grid)
    allocation = Allocation(device, config, allocate_storage(device, matrix, config, label))
    return Tensor(shape, matrix.dtype, matrix.layout, allocation=allocation)
