"""Storage of a tensor's matrix on a device, in shards or interleaved pages, and copies between storages.

A tensor is stored as a matrix: the last dim is the columns, all other dims together are the rows (sticks). In tile
layout, rows and columns are padded to multiples of 32. The model stores the values of a shard row by row even in tile
layout, because the order within a tile does not affect the counted bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Protocol

import torch
from torch import Tensor

from tessera.coregrid.cores import CoreRangeSet
from tessera.coregrid.device.arena import Buffer, CorePages, PageStorage, align_size
from tessera.coregrid.device.device import Device
from tessera.coregrid.formats import TILE_SIZE, DataType, Layout, decode_rows, encode_rows
from tessera.coregrid.memory_config import (
    BufferType,
    MemoryConfig,
    ShardOrientation,
    ShardSpec,
    TensorMemoryLayout,
    count_shards,
)
from tessera.coregrid.planning.ledger import Ledger
from tessera.coregrid.planning.sharding import choose_core_count, round_up
from tessera.errors import TesseraError
from tessera.geometry import Interval, Mesh


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixSpec:
    """Rows, columns, format and layout of a matrix."""

    rows: int
    columns: int
    dtype: DataType
    layout: Layout

    @classmethod
    def of(cls, shape: Sequence[int], dtype: DataType, layout: Layout) -> MatrixSpec:
        *leading, columns = shape
        return cls(rows=prod(leading), columns=columns, dtype=dtype, layout=layout)

    @property
    def padded_columns(self) -> int:
        return -(-self.columns // TILE_SIZE) * TILE_SIZE if self.layout is Layout.TILE else self.columns

    @property
    def row_bytes(self) -> int:
        return self.dtype.count_row_bytes(self.padded_columns)


@dataclass(frozen=True, slots=True)
class StoragePart:
    """A rectangle of a matrix: the shard on core `core`, or interleaved over all cores or banks (`core` is None)."""

    rows: Interval
    columns: Interval
    core: int | None


class Storage(Protocol):
    """Interface of a matrix stored on a device."""

    matrix: MatrixSpec
    in_banks: bool

    def list_parts(self) -> list[StoragePart]: ...

    def read(self, part: StoragePart, rows: Interval, columns: Interval) -> Tensor:
        """Return the bytes of a rectangle within a part of the matrix."""

    def write(self, part: StoragePart, rows: Interval, columns: Interval, raw: Tensor) -> None: ...

    def free(self) -> None: ...


@dataclass(slots=True, kw_only=True)
class ShardedStorage:
    """A matrix in `down` x `across` shards of `height` x `width`. `cores` lists the core of every shard, row by row."""

    in_banks = False

    device: Device
    matrix: MatrixSpec
    cores: tuple[int, ...]
    down: int
    across: int
    height: int
    width: int
    label: str = "tensor"
    buffer: Buffer = field(init=False)

    def __post_init__(self) -> None:
        assert len(self.cores) == self.down * self.across
        self.buffer = self.device.arena.allocate(self.bytes, self.label)

    @property
    def bytes(self) -> int:
        """Size of one shard in bytes."""
        return self.matrix.dtype.count_bytes(self.height, self.width, self.matrix.layout)

    def get_rows(self, row: int) -> Interval:
        """Return the range of matrix rows that row `row` of the shards holds."""
        most = self.matrix.rows
        return Interval(min(row * self.height, most), min((row + 1) * self.height, most))

    def get_core(self, row: int, column: int) -> int:
        return self.cores[row * self.across + column]

    def view(self, row: int, column: int) -> Tensor:
        """Return a view of the values of a shard. Block formats are not supported."""
        dtype = self.matrix.dtype.torch
        return self.device.arena.view(self.get_core(row, column), self.buffer, dtype, (self.height, self.width))

    def view_bytes(self, row: int, column: int) -> Tensor:
        """Return a view of a shard as bytes, one row of bytes per matrix row."""
        return self._view_core(self.get_core(row, column))

    def read_shard_values(self, row: int, column: int) -> Tensor:
        """Return the values of a shard: a view, or a decoded copy for block formats."""
        if self.matrix.dtype.is_block:
            return decode_rows(self.view_bytes(row, column), self.matrix.dtype)
        return self.view(row, column)

    def list_parts(self) -> list[StoragePart]:
        return [
            StoragePart(
                self.get_rows(row), Interval(column * self.width, (column + 1) * self.width), self.get_core(row, column)
            )
            for row in range(self.down)
            for column in range(self.across)
        ]

    def read(self, part: StoragePart, rows: Interval, columns: Interval) -> Tensor:
        assert part.core is not None
        return self._view_core(part.core)[
            (rows - part.rows.start).slice, self._get_byte_range(columns - part.columns.start)
        ]

    def write(self, part: StoragePart, rows: Interval, columns: Interval, raw: Tensor) -> None:
        self.read(part, rows, columns).copy_(raw)

    def clear(self) -> None:
        """Set all shards to zero, so that padding is initialised."""
        for core in self.cores:
            self._view_core(core).zero_()

    def free(self) -> None:
        self.device.arena.free(self.buffer)

    def _view_core(self, core: int) -> Tensor:
        shape = self.height, self.matrix.dtype.count_row_bytes(self.width)
        return self.device.arena.view(core, self.buffer, torch.uint8, shape)

    def _get_byte_range(self, columns: Interval) -> slice:
        return slice(self.matrix.dtype.count_row_bytes(columns.start), self.matrix.dtype.count_row_bytes(columns.stop))


class InterleavedStorage:
    """A matrix in pages interleaved over the banks or the cores. A page is a row, or a tile in tile layout."""

    def __init__(self, device: Device, matrix: MatrixSpec, *, in_banks: bool, label: str = "tensor") -> None:
        self.matrix, self.in_banks = matrix, in_banks
        self.tiled = matrix.layout is Layout.TILE
        if self.tiled:
            self._tiles_across = matrix.padded_columns // TILE_SIZE
            count, size = -(-matrix.rows // TILE_SIZE) * self._tiles_across, matrix.dtype.tile_bytes
        else:
            count, size = matrix.rows, align_size(matrix.row_bytes)
        self.pages: PageStorage
        if in_banks:
            self.pages = device.banks.allocate(count, size, label)
        else:
            self.pages = CorePages(device.arena, count, size, label)

    def list_parts(self) -> list[StoragePart]:
        return [StoragePart(Interval(0, self.matrix.rows), Interval(0, self.matrix.padded_columns), None)]

    def read(self, part: StoragePart, rows: Interval, columns: Interval) -> Tensor:
        row_bytes = self.matrix.dtype.count_row_bytes
        strip, first = self._read_row_strip(rows)
        return strip[(rows - first).slice, row_bytes(columns.start) : row_bytes(columns.stop)]

    def write(self, part: StoragePart, rows: Interval, columns: Interval, raw: Tensor) -> None:
        row_bytes = self.matrix.dtype.count_row_bytes
        strip, first = self._read_row_strip(rows)
        strip = strip.clone()
        strip[(rows - first).slice, row_bytes(columns.start) : row_bytes(columns.stop)] = raw
        if not self.tiled:
            self.pages.write_pages(first, strip)
            return
        tiles = strip.view(-1, TILE_SIZE, self._tiles_across, strip.shape[1] // self._tiles_across).transpose(1, 2)
        self.pages.write_pages(first // TILE_SIZE * self._tiles_across, tiles.reshape(-1, self.matrix.dtype.tile_bytes))

    def free(self) -> None:
        self.pages.free()

    def _read_row_strip(self, rows: Interval) -> tuple[Tensor, int]:
        """Return the bytes of all pages that contain `rows`, row by row, and the number of the first returned row."""
        if not self.tiled:
            return self.pages.read_pages(rows), rows.start
        first, last = rows.start // TILE_SIZE, -(-rows.stop // TILE_SIZE)
        tiles = self.pages.read_pages(Interval(first * self._tiles_across, last * self._tiles_across))
        strip = tiles.view(last - first, self._tiles_across, TILE_SIZE, -1).transpose(1, 2)
        return strip.reshape((last - first) * TILE_SIZE, -1), first * TILE_SIZE


def copy_matrix(source: Storage, target: Storage) -> Ledger:
    """Copy a matrix from one storage to another of equal number format, and return the bytes moved."""
    assert source.matrix.dtype is target.matrix.dtype
    if isinstance(target, ShardedStorage):
        target.clear()
    ledger = Ledger()
    columns = Interval(0, min(source.matrix.padded_columns, target.matrix.padded_columns))
    for there in target.list_parts():
        for here in source.list_parts():
            rows, wide = here.rows & there.rows, here.columns & there.columns & columns
            if len(rows) and len(wide):
                raw = source.read(here, rows, wide)
                target.write(there, rows, wide, raw)
                ledger += _count_copied_bytes(source, target, here, there, raw.numel())
    return ledger


def _count_copied_bytes(source: Storage, target: Storage, here: StoragePart, there: StoragePart, size: int) -> Ledger:
    if source.in_banks or target.in_banks:
        return Ledger(global_read=size * source.in_banks, global_written=size * target.in_banks)
    if here.core is not None and here.core == there.core:
        return Ledger(local=size)
    return Ledger(remote=size)


def write_matrix_bytes(target: Storage, raw: Tensor) -> None:
    """Write all rows of a matrix from bytes, one row of bytes per matrix row."""
    matrix, row_bytes = target.matrix, target.matrix.dtype.count_row_bytes
    if isinstance(target, ShardedStorage):
        target.clear()
    for part in target.list_parts():
        columns = part.columns & Interval(0, matrix.padded_columns)
        if len(part.rows) and len(columns):
            rows_raw = raw[part.rows.slice, row_bytes(columns.start) : row_bytes(columns.stop)]
            target.write(part, part.rows, columns, rows_raw)


def read_matrix_bytes(source: Storage) -> Tensor:
    """Return all rows of a matrix as bytes, one row of bytes per matrix row."""
    matrix, row_bytes = source.matrix, source.matrix.dtype.count_row_bytes
    raw = torch.zeros(matrix.rows, matrix.row_bytes, dtype=torch.uint8)
    for part in source.list_parts():
        columns = part.columns & Interval(0, matrix.padded_columns)
        if len(part.rows) and len(columns):
            place = raw[part.rows.slice, row_bytes(columns.start) : row_bytes(columns.stop)]
            place.copy_(source.read(part, part.rows, columns))
    return raw


def write_values(target: Storage, values: Tensor) -> None:
    """Write host values to a storage, rounded to the number format of the storage."""
    matrix = target.matrix
    raw = encode_rows(torch.nn.functional.pad(values, (0, matrix.padded_columns - matrix.columns)), matrix.dtype)
    write_matrix_bytes(target, raw)


def read_values(source: Storage) -> Tensor:
    """Copy the values of a matrix to the host: bfloat16 unchanged, all other formats as float32."""
    return decode_rows(read_matrix_bytes(source), source.matrix.dtype)[:, : source.matrix.columns]


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
    bounds = spec.grid.bounds
    if config.memory_layout == TensorMemoryLayout.BLOCK_SHARDED and bounds.size != spec.grid.size:
        raise TesseraError("block sharding requires a rectangle of cores", got=spec.grid.ranges)
    cores = spec.grid.list_core_numbers(grid, by_rows=by_rows)
    return cores, *count_shards(spec, config.memory_layout)
