"""Allocate the storage of a matrix on a device according to a memory config, and assign shards to cores."""

from __future__ import annotations

from tessera.coregrid.cores import CoreRangeSet
from tessera.coregrid.device.device import Device
from tessera.coregrid.device.memory_config import (
    BufferType,
    MemoryConfig,
    ShardOrientation,
    ShardSpec,
    TensorMemoryLayout,
)
from tessera.coregrid.device.storage import InterleavedStorage, MatrixSpec, ShardedStorage, Storage
from tessera.coregrid.formats import TILE_SIZE, Layout
from tessera.coregrid.planning.sharding import choose_core_count, round_up
from tessera.errors import TesseraError
from tessera.geometry import Mesh


def allocate_storage(device: Device, matrix: MatrixSpec, config: MemoryConfig, label: str = "tensor") -> Storage:
    """Allocate the storage of a matrix on a device. A sharded config must have a shard spec (see `complete_config`)."""
    if not config.is_sharded():
        return InterleavedStorage(device, matrix, in_banks=config.buffer_type is BufferType.DRAM, label=label)
    spec = config.shard_spec
    assert spec is not None
    cores, down, across = _assign_cores(config, spec, device.grid)
    height, width = spec.shape
    if matrix.layout is Layout.TILE and (height % TILE_SIZE or width % TILE_SIZE):
        raise TesseraError(
            "tiled shards must be multiples of 32", got=spec.shape, do="use ROW_MAJOR_LAYOUT, or round up"
        )
    if height * down < matrix.rows or width * across < matrix.padded_columns:
        raise TesseraError(
            "the shards are too small for the tensor",
            got=f"{down}x{across} shards of {height}x{width} for {matrix.rows}x{matrix.padded_columns}",
            do="use larger shards or more cores",
        )
    return ShardedStorage(
        device=device, matrix=matrix, cores=cores, down=down, across=across, height=height, width=width, label=label
    )


def complete_config(config: MemoryConfig, matrix: MatrixSpec, grid: Mesh) -> MemoryConfig:
    """Add a shard spec to a sharded config that has none: even shards of whole tiles, and no cores without data."""
    if not config.is_sharded() or config.shard_spec is not None:
        return config
    rows, columns = -(-matrix.rows // TILE_SIZE), -(-matrix.columns // TILE_SIZE)
    down = across = 1
    if config.memory_layout == TensorMemoryLayout.HEIGHT_SHARDED:
        down = choose_core_count(rows, grid.size)
        cores = CoreRangeSet.of_first(down, grid)
    elif config.memory_layout == TensorMemoryLayout.WIDTH_SHARDED:
        across = choose_core_count(columns, grid.size)
        cores = CoreRangeSet.of_first(across, grid)
    else:
        down, across = choose_core_count(rows, grid.rows), choose_core_count(columns, grid.cols)
        cores = CoreRangeSet.of_rectangle(down, across)
    shape = round_up(matrix.rows, down * TILE_SIZE) // down, round_up(matrix.columns, across * TILE_SIZE) // across
    return MemoryConfig(config.memory_layout, config.buffer_type, ShardSpec(cores, shape))


def _assign_cores(config: MemoryConfig, spec: ShardSpec, grid: Mesh) -> tuple[tuple[int, ...], int, int]:
    """Return the core of every shard (shards in row-major order), and the number of rows and columns of shards."""
    by_rows = spec.orientation is ShardOrientation.ROW_MAJOR
    if config.memory_layout == TensorMemoryLayout.HEIGHT_SHARDED:
        cores = spec.grid.list_core_numbers(grid, by_rows=by_rows)
        return cores, len(cores), 1
    if config.memory_layout == TensorMemoryLayout.WIDTH_SHARDED:
        cores = spec.grid.list_core_numbers(grid, by_rows=by_rows)
        return cores, 1, len(cores)
    bounds = spec.grid.bounds
    if bounds.size != spec.grid.size:
        raise TesseraError("block sharding requires a rectangle of cores", got=spec.grid.ranges)
    # a row of shards is on a row of cores; in column-major orientation, on a column of cores
    cores = spec.grid.list_core_numbers(grid, by_rows=by_rows)
    return (cores, bounds.rows, bounds.columns) if by_rows else (cores, bounds.columns, bounds.rows)
