"""Where a tensor lies: interleaved over banks or cores, or in shards on given cores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from math import prod

from tessera.coregrid.device.grids import CoreRangeSet
from tessera.coregrid.formats import TILE
from tessera.errors import TesseraError


class TensorMemoryLayout(StrEnum):
    """Pages dealt round robin, or shards: runs of rows, of columns, or both."""

    INTERLEAVED = "INTERLEAVED"
    HEIGHT_SHARDED = "HEIGHT"
    WIDTH_SHARDED = "WIDTH"
    BLOCK_SHARDED = "BLOCK"

    @property
    def is_sharded(self) -> bool:
        return self is not TensorMemoryLayout.INTERLEAVED


class BufferType(Enum):
    """The banks that all cores share, or the cores' own memory."""

    DRAM = "dram"
    L1 = "l1"


class ShardOrientation(Enum):
    """Whether shards are dealt to the cores row after row or column after column."""

    ROW_MAJOR = "row_major"
    COL_MAJOR = "col_major"


class ShardStrategy(Enum):
    """What is cut, by the names of `create_sharded_memory_config`."""

    HEIGHT = TensorMemoryLayout.HEIGHT_SHARDED
    WIDTH = TensorMemoryLayout.WIDTH_SHARDED
    BLOCK = TensorMemoryLayout.BLOCK_SHARDED


@dataclass(frozen=True, slots=True)
class ShardSpec:
    """Shards of `shape` (rows, columns) on the cores of a grid, in the order of its orientation."""

    grid: CoreRangeSet
    shape: tuple[int, int]
    orientation: ShardOrientation = ShardOrientation.ROW_MAJOR

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        if len(self.shape) != 2 or min(self.shape) < 1:
            raise TesseraError("a shard has rows and columns", got=self.shape, allowed="two numbers of 1 or more")


@dataclass(frozen=True, slots=True)
class MemoryConfig:
    """A layout, the memory it is in, and the shards if it has any."""

    memory_layout: TensorMemoryLayout = TensorMemoryLayout.INTERLEAVED
    buffer_type: BufferType = BufferType.DRAM
    shard_spec: ShardSpec | None = None

    def __post_init__(self) -> None:
        if self.shard_spec is not None and not self.memory_layout.is_sharded:
            raise TesseraError("an interleaved tensor has no shards", got=self.shard_spec)
        if self.memory_layout.is_sharded and self.buffer_type is BufferType.DRAM:
            raise TesseraError("shards lie in the cores' own memory", got=self.buffer_type.name, allowed="L1")

    def is_sharded(self) -> bool:
        return self.memory_layout.is_sharded


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
    """Even shards of whole tiles for a tensor of this shape over all cores of a grid; or `shape` is a shard's own."""
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
    # each side is divided by the cores along it, and rounded up to tiles
    shard = (-(-height // (down * TILE)) * TILE, -(-width // (across * TILE)) * TILE)
    return MemoryConfig(strategy.value, BufferType.L1, ShardSpec(core_grid, shard, orientation))
