"""Inputs of operations: check shape and device, parse window parameters, and height-shard tensors."""

from __future__ import annotations

from torch import Tensor as TorchTensor

from tessera.coregrid.device.arena import BufferMatrix, StridedCores
from tessera.coregrid.device.device import Device
from tessera.coregrid.device.storage import MatrixSpec, ShardedStorage, complete_config
from tessera.coregrid.device.tensors import Tensor, deallocate, to_device, to_memory_config
from tessera.coregrid.memory_config import L1_HEIGHT_SHARDED_MEMORY_CONFIG, BufferType, MemoryConfig
from tessera.errors import TesseraError
from tessera.geometry import Interval


def check_images(tensor: Tensor, shape: tuple[int, int, int, int], device: Device) -> None:
    """Raise an error unless `tensor` is `(N, H, W, C)` or `(1, 1, N*H*W, C)`, and on the host or on `device`."""
    batch, height, width, channels = shape
    flat = (1, 1, batch * height * width, channels)
    if tensor.shape not in (shape, flat):
        raise TesseraError(
            "the shape of the input does not match the parameters", got=tensor.shape, allowed=f"{shape} or {flat}"
        )
    if tensor.is_on_device and tensor.allocation.device is not device:
        raise TesseraError(
            "the input is not on the device of the call", got=tensor.allocation.device, allowed=f"{device}"
        )
    _ = device.arena  # raises if the device is closed


def choose_device(tensor: Tensor, device: Device | None) -> Device:
    """Return the device of a tensor, or `device` for a host tensor."""
    if tensor.is_on_device:
        return tensor.allocation.device
    if device is None:
        raise TesseraError("a host tensor requires a device", got=tensor, do="pass device=")
    return device


def release_activation(tensor: Tensor) -> None:
    """Deallocate an input that the caller gave away. Tensors in global memory stay, as on the chip."""
    if tensor.is_on_device and tensor.memory_config().buffer_type is not BufferType.DRAM:
        deallocate(tensor)


def ensure_height_sharded(
    tensor: Tensor, device: Device, *, free_input: bool = False
) -> tuple[Tensor, ShardedStorage, bool]:
    """Return `tensor` height-sharded from core 0 on, its shards, and whether the caller must free the returned tensor.

    A tensor that is not sharded this way is copied; with `free_input`, the original is deallocated after the copy.
    """
    if tensor.is_on_device:
        storage = tensor.storage
        if isinstance(storage, ShardedStorage) and storage.across == 1 and storage.cores == tuple(range(storage.down)):
            return tensor, storage, free_input
        copied = to_memory_config(tensor, L1_HEIGHT_SHARDED_MEMORY_CONFIG)
        if free_input:
            release_activation(tensor)
    else:
        copied = to_device(tensor, device, L1_HEIGHT_SHARDED_MEMORY_CONFIG)
    storage = copied.storage
    assert isinstance(storage, ShardedStorage)
    return copied, storage, True


def plan_height_shards(matrix: MatrixSpec, device: Device) -> tuple[MemoryConfig, list[Interval]]:
    """Return a memory config that height-shards a matrix over the cores of a device, and the rows of each used core."""
    config = complete_config(L1_HEIGHT_SHARDED_MEMORY_CONFIG, matrix, device.grid)
    assert config.shard_spec is not None
    height, most = config.shard_spec.shape[0], matrix.rows
    cores = range(config.shard_spec.grid.size)
    return config, [Interval(min(core * height, most), min((core + 1) * height, most)) for core in cores]


def write_shard(storage: ShardedStorage, row: int, column: int, values: TorchTensor) -> None:
    """Write `values` to shard (row, column), rounded to the storage's format. Missing columns are set to zero."""
    cores, rows = StridedCores(storage.get_core(row, column)), len(storage.get_rows(row))
    shard = BufferMatrix(storage.device.arena, cores, storage.buffer, storage.matrix.dtype, rows, storage.width)
    if values.shape[1] < storage.width:
        shard.raw.zero_()
    shard.store_values(values[:, : storage.width])
