"""Tensors on the host and on a device, and how they get from one to the other and from one sharding to another."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch

from tessera.coregrid.device.device import Device
from tessera.coregrid.device.memory_config import DRAM_MEMORY_CONFIG, MemoryConfig
from tessera.coregrid.device.placement import completed, place
from tessera.coregrid.device.storage import Matrix, Shards, Storage, copy, fill, values
from tessera.coregrid.formats import DTYPES, DataType, Layout, bfloat16, float32, rounded
from tessera.coregrid.planning.ledger import Ledger
from tessera.errors import TesseraError


class Tensor:
    """Numbers of a format in a layout: on the host, or on a device where its memory config says.

    Two tensors may share one storage (`reshape`): to deallocate one is to deallocate both.
    """

    def __init__(
        self,
        shape: Sequence[int],
        dtype: DataType,
        layout: Layout,
        *,
        host: torch.Tensor | None = None,
        placed: Placed | None = None,
    ) -> None:
        assert (host is None) != (placed is None)
        self.shape, self.dtype, self.layout = tuple(shape), dtype, layout
        self._host, self._placed = host, placed

    @property
    def is_on_device(self) -> bool:
        return self._placed is not None

    @property
    def host(self) -> torch.Tensor:
        """The numbers of a tensor on the host."""
        if self._host is None:
            raise TesseraError("the tensor is on a device", got=self, do="use from_device or to_torch")
        return self._host

    @property
    def placed(self) -> Placed:
        """Where the tensor lies; an error if it was deallocated, or if its device is closed."""
        if self._placed is None:
            raise TesseraError("the tensor is on the host", got=self, do="use to_device")
        _ = self._placed.device.arena  # raises if the device is closed
        if self._placed.freed:
            raise TesseraError("the tensor is deallocated", got=self, do="keep it, or make it anew")
        return self._placed

    @property
    def storage(self) -> Storage:
        return self.placed.storage

    def device(self) -> Device | None:
        return None if self._placed is None else self._placed.device

    def memory_config(self) -> MemoryConfig:
        return self.placed.config

    def is_sharded(self) -> bool:
        return self._placed is not None and self._placed.config.is_sharded()

    def is_allocated(self) -> bool:
        return self._host is not None or (self._placed is not None and not self._placed.freed)

    @property
    def matrix(self) -> Matrix:
        """The tensor as rows and columns."""
        return Matrix.of(self.shape, self.dtype, self.layout)

    def with_shape(self, shape: Sequence[int]) -> Tensor:
        """The same numbers in the same place under another shape of the same columns."""
        return Tensor(shape, self.dtype, self.layout, host=self._host, placed=self._placed)

    def __repr__(self) -> str:
        where = "host" if self._placed is None else f"{self._placed.config.memory_layout.name.lower()}"
        return f"Tensor({'x'.join(map(str, self.shape))}, {self.dtype}, {self.layout.value}, {where})"


class Placed:
    """A storage on a device, shared by the tensors that show it, until it is freed."""

    def __init__(self, device: Device, config: MemoryConfig, storage: Storage) -> None:
        self.device, self.config, self.storage, self.freed = device, config, storage, False

    def free(self) -> None:
        if not self.freed:
            self.freed = True
            self.storage.free()


def from_torch(
    tensor: torch.Tensor,
    dtype: DataType | None = None,
    *,
    layout: Layout | None = None,
    device: Device | None = None,
    memory_config: MemoryConfig | None = None,
) -> Tensor:
    """A torch tensor in a format of the device, its numbers rounded to it; on the host unless a device is given."""
    if dtype is None:
        dtype = bfloat16 if tensor.dtype == torch.bfloat16 else float32
    if dtype not in DTYPES.values():
        raise TesseraError("unknown dtype", got=dtype, allowed=DTYPES)
    if layout is None:
        layout = Layout.TILE if dtype.is_block else Layout.ROW_MAJOR
    if dtype.is_block and layout is not Layout.TILE:
        raise TesseraError("a block format exists in tiles only", got=dtype, do="use layout=TILE_LAYOUT")
    if not tensor.is_floating_point():
        raise TesseraError("tensors of a device hold floating point numbers", got=tensor.dtype)
    host = rounded(tensor.detach(), dtype).to(dtype.torch)
    found = Tensor(tensor.shape, dtype, layout, host=host)
    return found if device is None else to_device(found, device, memory_config)


def to_torch(tensor: Tensor) -> torch.Tensor:
    """The numbers as a torch tensor: bfloat16 as such, everything else as float32."""
    if not tensor.is_on_device:
        return tensor.host.clone()
    return values(tensor.storage).reshape(tensor.shape)


def to_device(tensor: Tensor, device: Device, memory_config: MemoryConfig | None = None) -> Tensor:
    """A tensor of the host on a device, interleaved over its banks unless a memory config says otherwise."""
    matrix = tensor.matrix
    found = empty(device, matrix, tensor.shape, memory_config or DRAM_MEMORY_CONFIG)
    fill(found.storage, tensor.host.reshape(matrix.rows, matrix.columns))
    return found


def from_device(tensor: Tensor) -> Tensor:
    """A tensor of a device on the host."""
    return Tensor(tensor.shape, tensor.dtype, tensor.layout, host=to_torch(tensor))


def to_memory_config(tensor: Tensor, memory_config: MemoryConfig) -> Tensor:
    """The tensor in another place of its device: interleaved, or sharded otherwise. The first one stays."""
    device = tensor.placed.device
    found = empty(device, tensor.matrix, tensor.shape, memory_config)
    device.count(copy(tensor.storage, found.storage))
    return found


def moved_to(tensor: Tensor, memory_config: MemoryConfig | None) -> Tensor:
    """The tensor in the place that is wanted, if one is; it leaves the first even if there is no room in the other."""
    if memory_config is None:
        return tensor
    try:
        return to_memory_config(tensor, memory_config)
    finally:
        deallocate(tensor)


def to_layout(tensor: Tensor, layout: Layout) -> Tensor:
    """The tensor row by row, or in tiles; on a device a new one, in the same place if it has shards."""
    if tensor.dtype.is_block and layout is not Layout.TILE:
        raise TesseraError("a block format exists in tiles only", got=tensor.dtype, do="use typecast to bfloat16 first")
    if not tensor.is_on_device:
        return Tensor(tensor.shape, tensor.dtype, layout, host=tensor.host)
    placed = tensor.placed
    matrix = Matrix.of(tensor.shape, tensor.dtype, layout)
    found = empty(placed.device, matrix, tensor.shape, placed.config)
    placed.device.count(copy(placed.storage, found.storage))
    return found


def typecast(tensor: Tensor, dtype: DataType) -> Tensor:
    """The tensor rounded to another format; on a device a new one in the same place."""
    layout = Layout.TILE if dtype.is_block else tensor.layout
    if not tensor.is_on_device:
        return from_torch(tensor.host.float(), dtype, layout=layout)
    placed = tensor.placed
    matrix = Matrix.of(tensor.shape, dtype, layout)
    found = empty(placed.device, matrix, tensor.shape, placed.config)
    fill(found.storage, values(placed.storage))
    return found


def deallocate(tensor: Tensor) -> None:
    """Give the memory of a tensor on a device back; twice does no harm."""
    if tensor._placed is not None and tensor._placed.device.is_open:
        tensor._placed.free()


def reshape(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """The same numbers under another shape; one entry may be -1. In global memory, unless the last dim stays."""
    shape = tuple(shape)
    total = prod(tensor.shape)
    if shape.count(-1) == 1:
        rest = -prod(shape)
        shape = tuple(total // rest if size == -1 else size for size in shape)
    if prod(shape) != total:
        raise TesseraError("a reshape keeps the number of values", got=shape, allowed=f"shapes of {total} values")
    if not tensor.is_on_device:
        return Tensor(shape, tensor.dtype, tensor.layout, host=tensor.host.reshape(shape))
    if shape[-1] == tensor.shape[-1]:
        return tensor.with_shape(shape)
    placed = tensor.placed
    found = empty(placed.device, Matrix.of(shape, tensor.dtype, tensor.layout), shape, DRAM_MEMORY_CONFIG)
    numbers = values(placed.storage)
    fill(found.storage, numbers.reshape(found.matrix.rows, found.matrix.columns))
    read = tensor.matrix.rows * tensor.matrix.row_bytes if placed.storage.in_banks else 0
    placed.device.count(Ledger(global_read=read, global_written=found.matrix.rows * found.matrix.row_bytes))
    return found


def on_cores(tensor: Tensor) -> Shards:
    """The shards of a tensor that is sharded."""
    storage = tensor.storage
    if not isinstance(storage, Shards):
        raise TesseraError("this works on shards", got=tensor, do="shard the tensor with to_memory_config")
    return storage


def empty(device: Device, matrix: Matrix, shape: Sequence[int], config: MemoryConfig, what: str = "tensor") -> Tensor:
    """Memory for a tensor on a device, with no numbers in it yet."""
    config = completed(config, matrix, device.grid)
    placed = Placed(device, config, place(device, matrix, config, what))
    return Tensor(shape, matrix.dtype, matrix.layout, placed=placed)
