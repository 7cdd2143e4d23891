"""Height-sharded tensors, which most operations but convolutions work on: runs of sticks on the first cores."""

from __future__ import annotations

from torch import Tensor as TorchTensor

from tessera.coregrid.device.arena import Cores
from tessera.coregrid.device.device import Device
from tessera.coregrid.device.memory_config import BufferType, MemoryConfig, TensorMemoryLayout
from tessera.coregrid.device.placement import completed
from tessera.coregrid.device.slab import Slab
from tessera.coregrid.device.storage import Matrix, Shards
from tessera.coregrid.device.tensors import Tensor, deallocate, to_device, to_memory_config
from tessera.geometry import Interval

HEIGHT = MemoryConfig(TensorMemoryLayout.HEIGHT_SHARDED, BufferType.L1)


def by_height(given: Tensor, device: Device, *, frees: bool = False) -> tuple[Tensor, Shards, bool]:
    """A tensor in runs of sticks on the first cores, its shards, and whether to free it once it is read.

    What lies otherwise is copied, and with `frees` deallocated as soon as it is.
    """
    if given.is_on_device:
        storage = given.storage
        if isinstance(storage, Shards) and storage.across == 1 and storage.cores == tuple(range(storage.down)):
            return given, storage, frees
        copied = to_memory_config(given, HEIGHT)
        if frees:
            deallocate(given)
    else:
        copied = to_device(given, device, HEIGHT)
    storage = copied.storage
    assert isinstance(storage, Shards)
    return copied, storage, True


def even_runs(matrix: Matrix, device: Device) -> tuple[MemoryConfig, list[Interval]]:
    """How a matrix lies height-sharded over as many cores as get something, and the rows of each."""
    config = completed(HEIGHT, matrix, device.grid)
    assert config.shard_spec is not None
    height, most = config.shard_spec.shape[0], matrix.rows
    cores = range(config.shard_spec.grid.size)
    return config, [Interval(min(core * height, most), min((core + 1) * height, most)) for core in cores]


def put(storage: Shards, row: int, column: int, values: TorchTensor) -> None:
    """Write the real rows of a shard, rounded to its format; columns that are not given become zeros."""
    slab = Slab(
        arena=storage.device.arena,
        cores=Cores(storage.core(row, column)),
        buffer=storage.buffer,
        dtype=storage.matrix.dtype,
        rows=len(storage.rows(row)),
        columns=storage.width,
    )
    if values.shape[1] < storage.width:
        slab.raw.zero_()
    slab.store(values[:, : storage.width])
