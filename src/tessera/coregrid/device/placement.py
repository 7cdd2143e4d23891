"""From a memory config to a place on a device: which cores have which shards."""

from __future__ import annotations

from tessera.coregrid.device.device import Device
from tessera.coregrid.device.grids import CoreRangeSet
from tessera.coregrid.device.memory_config import (
    BufferType,
    MemoryConfig,
    ShardOrientation,
    ShardSpec,
    TensorMemoryLayout,
)
from tessera.coregrid.device.storage import Interleaved, Matrix, Shards, Storage
from tessera.coregrid.formats import TILE, Layout
from tessera.coregrid.planning.sharding import cores_for, round_up
from tessera.errors import TesseraError
from tessera.geometry import Mesh


def place(device: Device, matrix: Matrix, config: MemoryConfig, what: str = "tensor") -> Storage:
    """Memory for a matrix, as the config says; a sharded one needs its shards (see `completed`)."""
    if not config.is_sharded():
        return Interleaved(device, matrix, in_banks=config.buffer_type is BufferType.DRAM, what=what)
    spec = config.shard_spec
    assert spec is not None
    cores, down, across = _dealt(config, spec, device.grid)
    height, width = spec.shape
    if matrix.layout is Layout.TILE and (height % TILE or width % TILE):
        raise TesseraError(
            "shards in tiles are multiples of 32", got=spec.shape, do="use ROW_MAJOR_LAYOUT, or round up"
        )
    if height * down < matrix.rows or width * across < matrix.padded_columns:
        raise TesseraError(
            "the shards hold the whole tensor",
            got=f"{down}x{across} shards of {height}x{width} for {matrix.rows}x{matrix.padded_columns}",
            do="use larger shards or more cores",
        )
    return Shards(
        device=device, matrix=matrix, cores=cores, down=down, across=across, height=height, width=width, what=what
    )


def completed(config: MemoryConfig, matrix: Matrix, grid: Mesh) -> MemoryConfig:
    """The config with shards, if it is sharded and has none: even ones over as many cores as get something."""
    if not config.is_sharded() or config.shard_spec is not None:
        return config
    rows, columns = -(-matrix.rows // TILE), -(-matrix.columns // TILE)
    down = across = 1
    if config.memory_layout == TensorMemoryLayout.HEIGHT_SHARDED:
        down = cores_for(rows, grid.size)
        cores = CoreRangeSet.first(down, grid)
    elif config.memory_layout == TensorMemoryLayout.WIDTH_SHARDED:
        across = cores_for(columns, grid.size)
        cores = CoreRangeSet.first(across, grid)
    else:
        down, across = cores_for(rows, grid.rows), cores_for(columns, grid.cols)
        cores = CoreRangeSet.rectangle(down, across)
    shape = round_up(matrix.rows, down * TILE) // down, round_up(matrix.columns, across * TILE) // across
    return MemoryConfig(config.memory_layout, config.buffer_type, ShardSpec(cores, shape))


def _dealt(config: MemoryConfig, spec: ShardSpec, grid: Mesh) -> tuple[tuple[int, ...], int, int]:
    """The cores of the shards, row after row of shards, and how many shards there are down and across."""
    by_rows = spec.orientation is ShardOrientation.ROW_MAJOR
    if config.memory_layout == TensorMemoryLayout.HEIGHT_SHARDED:
        cores = spec.grid.numbers(grid, by_rows=by_rows)
        return cores, len(cores), 1
    if config.memory_layout == TensorMemoryLayout.WIDTH_SHARDED:
        cores = spec.grid.numbers(grid, by_rows=by_rows)
        return cores, 1, len(cores)
    bounds = spec.grid.bounds
    if bounds.size != spec.grid.size:
        raise TesseraError("block shards lie on a rectangle of cores", got=spec.grid.ranges)
    # shards go along the rows of cores; with the other orientation rows of shards lie on columns of cores
    cores = spec.grid.numbers(grid, by_rows=by_rows)
    return (cores, bounds.rows, bounds.columns) if by_rows else (cores, bounds.columns, bounds.rows)
