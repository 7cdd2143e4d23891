"""Memory configs of a tensor: interleaved over banks or cores, or sharded on a set of cores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from math import prod

from tessera.coregrid.cores import CoreRangeSet
from tessera.coregrid.formats import TILE_SIZE
from tessera.errors import TesseraError


class TensorMemoryLayout(StrEnum):
    """Memory layout of a tensor: interleaved pages, or shards of rows (HEIGHT), columns (WIDTH) or both (BLOCK)."""

    INTERLEAVED = "INTERLEAVED"
    HEIGHT_SHARDED = "HEIGHT"
    WIDTH_SHARDED = "WIDTH"
    BLOCK_SHARDED = "BLOCK"

    @property
    def is_sharded(self) -> bool:
        return self is not TensorMemoryLayout.INTERLEAVED


class BufferType(Enum):
    """Kind of memory: the shared memory banks (DRAM), or the local memories of the cores (L1)."""

    DRAM = "dram"
    L1 = "l1"


class ShardOrientation(Enum):
    """Order in which shards are assigned to cores: row by row or column by column."""

    ROW_MAJOR = "row_major"
    COL_MAJOR = "col_major"


class ShardStrategy(Enum):
    """Sharded dimension, for the argument `strategy` of `create_sharded_memory_config`."""

    HEIGHT = TensorMemoryLayout.HEIGHT_SHARDED
    WIDTH = TensorMemoryLayout.WIDTH_SHARDED
    BLOCK = TensorMemoryLayout.BLOCK_SHARDED


@dataclass(frozen=True, slots=True)
class ShardSpec:
    """Shards of `shape` (rows, columns), assigned to the cores of `grid` in the order given by `orientation`."""

    grid: CoreRangeSet
    shape: tuple[int, int]
    orientation: ShardOrientation = ShardOrientation.ROW_MAJOR

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        if len(self.shape) != 2 or min(self.shape) < 1:
            raise TesseraError("a shard shape must be (rows, columns)", got=self.shape, allowed="two positive numbers")


@dataclass(frozen=True, slots=True)
class MemoryConfig:
    """Memory layout and kind of memory of a tensor; for a sharded layout also the shards."""

    memory_layout: TensorMemoryLayout = TensorMemoryLayout.INTERLEAVED
    buffer_type: BufferType = BufferType.DRAM
    shard_spec: ShardSpec | None = None

    def __post_init__(self) -> None:
        if self.shard_spec is not None and not self.memory_layout.is_sharded:
            raise TesseraError("an interleaved memory config must not have a shard spec", got=self.shard_spec)
        if self.memory_layout.is_sharded and self.buffer_type is BufferType.DRAM:
            raise TesseraError(
                "sharded tensors require the memory of the cores", got=self.buffer_type.name, allowed="L1"
            )

    def is_sharded(self) -> bool:
        return self.memory_layout.is_sharded


def count_shards(spec: ShardSpec, layout: str) -> tuple[int, int]:
    """Return the number of rows and columns of shards of a HEIGHT, WIDTH or BLOCK layout."""
    if layout == TensorMemoryLayout.HEIGHT_SHARDED:
        return spec.grid.size, 1
    if layout == TensorMemoryLayout.WIDTH_SHARDED:
        return 1, spec.grid.size
    bounds = spec.grid.bounds
    # a row of shards is on a row of cores; in column-major orientation, on a column of cores
    by_rows = spec.orientation is ShardOrientation.ROW_MAJOR
    return (bounds.rows, bounds.columns) if by_rows else (bounds.columns, bounds.rows)


DRAM_MEMORY_CONFIG = MemoryConfig()
L1_MEMORY_CONFIG = MemoryConfig(TensorMemoryLayout.INTERLEAVED, BufferType.L1)
L1_HEIGHT_SHARDED_MEMORY_CONFIG = MemoryConfig(TensorMemoryLayout.HEIGHT_SHARDED, BufferType.L1)
L1_WIDTH_SHARDED_MEMORY_CONFIG = MemoryConfig(TensorMemoryLayout.WIDTH_SHARDED, BufferType.L1)
L1_BLOCK_SHARDED_MEMORY_CONFIG = MemoryConfig(TensorMemoryLayout.BLOCK_SHARDED, BufferType.L1)


def create_sharded_memory_config(
    shape: Sequence[int],
    core_grid: CoreRangeSet,
    strategy: ShardStrategy,
    orientation: ShardOrientation = ShardOrientation.ROW_MAJOR,
    *,
    use_height_and_width_as_shard_shape: bool = False,
) -> MemoryConfig:
    """Build the config of a tensor of `shape`, split evenly in whole tiles over all cores of a grid.

    With `use_height_and_width_as_shard_shape`, `shape` is the shape of one shard.
    """
    *leading, width = shape
    height, bounds = prod(leading), core_grid.bounds
    if use_height_and_width_as_shard_shape:
        return MemoryConfig(strategy.value, BufferType.L1, ShardSpec(core_grid, (shape[-2], width), orientation))
    down, across = core_grid.size, 1
    if strategy is ShardStrategy.WIDTH:
        down, across = 1, core_grid.size
    elif strategy is ShardStrategy.BLOCK:
        by_rows = orientation is ShardOrientation.ROW_MAJOR
        down, across = (bounds.rows, bounds.columns) if by_rows else (bounds.columns, bounds.rows)
    # divide each dim by the number of cores along this dim, rounded up to whole tiles
    shard = (-(-height // (down * TILE_SIZE)) * TILE_SIZE, -(-width // (across * TILE_SIZE)) * TILE_SIZE)
    return MemoryConfig(strategy.value, BufferType.L1, ShardSpec(core_grid, shard, orientation))
