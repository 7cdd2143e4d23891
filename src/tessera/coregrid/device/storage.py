"""How the matrix of a tensor lies on a device: in shards on cores, or in pages dealt round robin; and copies between.

A tensor is a matrix: its last dim is the columns, all others are its rows (sticks). In tiles both are padded to 32.
Inside a shard numbers lie row by row in either layout: the order within a tile changes nothing that is counted here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Protocol

import torch
from torch import Tensor

from tessera.coregrid.device.arena import Buffer
from tessera.coregrid.device.banks import CorePages, Pages
from tessera.coregrid.device.device import Device
from tessera.coregrid.device.freelist import aligned
from tessera.coregrid.formats import TILE, DataType, Layout, numbers, stored
from tessera.coregrid.planning.ledger import Ledger
from tessera.geometry import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """What lies there: so many rows and columns of a format in a layout."""

    rows: int
    columns: int
    dtype: DataType
    layout: Layout

    @classmethod
    def of(cls, shape: Sequence[int], dtype: DataType, layout: Layout) -> Matrix:
        *leading, columns = shape
        return cls(rows=prod(leading), columns=columns, dtype=dtype, layout=layout)

    @property
    def padded_columns(self) -> int:
        return -(-self.columns // TILE) * TILE if self.layout is Layout.TILE else self.columns

    @property
    def row_bytes(self) -> int:
        return self.dtype.row_bytes(self.padded_columns)


@dataclass(frozen=True, slots=True)
class Part:
    """A rectangle of a matrix that lies in one place: on a core, or (None) spread over many."""

    rows: Interval
    columns: Interval
    core: int | None


class Storage(Protocol):
    """A matrix somewhere on a device."""

    matrix: Matrix
    in_banks: bool

    def parts(self) -> list[Part]: ...

    def read(self, part: Part, rows: Interval, columns: Interval) -> Tensor:
        """The bytes of a rectangle within a part."""

    def write(self, part: Part, rows: Interval, columns: Interval, raw: Tensor) -> None: ...

    def free(self) -> None: ...


@dataclass(slots=True, kw_only=True)
class Shards:
    """Shards of `height` x `width` on `down` x `across` cores, row after row of them in `cores`."""

    in_banks = False

    device: Device
    matrix: Matrix
    cores: tuple[int, ...]
    down: int
    across: int
    height: int
    width: int
    what: str = "tensor"
    buffer: Buffer = field(init=False)

    def __post_init__(self) -> None:
        assert len(self.cores) == self.down * self.across
        self.buffer = self.device.arena.allocate(self.bytes, self.what)

    @property
    def bytes(self) -> int:
        """Of one shard."""
        return self.matrix.dtype.bytes_of(self.height, self.width, self.matrix.layout)

    def rows(self, row: int) -> Interval:
        """The rows of the matrix that a row of cores has."""
        most = self.matrix.rows
        return Interval(min(row * self.height, most), min((row + 1) * self.height, most))

    def core(self, row: int, column: int) -> int:
        return self.cores[row * self.across + column]

    def view(self, row: int, column: int) -> Tensor:
        """A shard of a plain format, as it lies on its core."""
        dtype = self.matrix.dtype.torch
        return self.device.arena.view(self.core(row, column), self.buffer, dtype, (self.height, self.width))

    def raw(self, row: int, column: int) -> Tensor:
        """The bytes of a shard, row by row."""
        shape = self.height, self.matrix.dtype.row_bytes(self.width)
        return self.device.arena.view(self.core(row, column), self.buffer, torch.uint8, shape)

    def numbers(self, row: int, column: int) -> Tensor:
        """The numbers of a shard: as they lie, or a copy if the format is one of blocks."""
        if self.matrix.dtype.is_block:
            return numbers(self.raw(row, column), self.matrix.dtype)
        return self.view(row, column)

    def parts(self) -> list[Part]:
        return [
            Part(self.rows(row), Interval(column * self.width, (column + 1) * self.width), self.core(row, column))
            for row in range(self.down)
            for column in range(self.across)
        ]

    def read(self, part: Part, rows: Interval, columns: Interval) -> Tensor:
        return self._bytes(part)[(rows - part.rows.start).slice, self._across(columns - part.columns.start)]

    def write(self, part: Part, rows: Interval, columns: Interval, raw: Tensor) -> None:
        self.read(part, rows, columns).copy_(raw)

    def clear(self) -> None:
        """Zeros everywhere, so that what is padding is never a surprise."""
        for part in self.parts():
            self._bytes(part).zero_()

    def free(self) -> None:
        self.device.arena.free(self.buffer)

    def _bytes(self, part: Part) -> Tensor:
        assert part.core is not None
        shape = self.height, self.matrix.dtype.row_bytes(self.width)
        return self.device.arena.view(part.core, self.buffer, torch.uint8, shape)

    def _across(self, columns: Interval) -> slice:
        return slice(self.matrix.dtype.row_bytes(columns.start), self.matrix.dtype.row_bytes(columns.stop))


class Interleaved:
    """Pages over the banks, or over the cores: a page is a row, or a tile."""

    def __init__(self, device: Device, matrix: Matrix, *, in_banks: bool, what: str = "tensor") -> None:
        self.matrix, self.in_banks = matrix, in_banks
        self.tiled = matrix.layout is Layout.TILE
        if self.tiled:
            self._across = matrix.padded_columns // TILE
            count, size = -(-matrix.rows // TILE) * self._across, matrix.dtype.tile_bytes
        else:
            count, size = matrix.rows, aligned(matrix.row_bytes)
        self.pages: Pages
        if in_banks:
            self.pages = device.banks.allocate(count, size, what)
        else:
            self.pages = CorePages(device.arena, count, size, what)

    def parts(self) -> list[Part]:
        return [Part(Interval(0, self.matrix.rows), Interval(0, self.matrix.padded_columns), None)]

    def read(self, part: Part, rows: Interval, columns: Interval) -> Tensor:
        row_bytes = self.matrix.dtype.row_bytes
        strip, first = self._strip(rows)
        return strip[(rows - first).slice, row_bytes(columns.start) : row_bytes(columns.stop)]

    def write(self, part: Part, rows: Interval, columns: Interval, raw: Tensor) -> None:
        row_bytes = self.matrix.dtype.row_bytes
        strip, first = self._strip(rows)
        strip = strip.clone()
        strip[(rows - first).slice, row_bytes(columns.start) : row_bytes(columns.stop)] = raw
        if not self.tiled:
            self.pages.put(first, strip)
            return
        tiles = strip.view(-1, TILE, self._across, strip.shape[1] // self._across).transpose(1, 2)
        self.pages.put(first // TILE * self._across, tiles.reshape(-1, self.matrix.dtype.tile_bytes))

    def free(self) -> None:
        self.pages.free()

    def _strip(self, rows: Interval) -> tuple[Tensor, int]:
        """All bytes of the pages that these rows are in, row by row, and the row they begin with."""
        if not self.tiled:
            return self.pages.get(rows), rows.start
        first, last = rows.start // TILE, -(-rows.stop // TILE)
        tiles = self.pages.get(Interval(first * self._across, last * self._across))
        strip = tiles.view(last - first, self._across, TILE, -1).transpose(1, 2)
        return strip.reshape((last - first) * TILE, -1), first * TILE


def copy(source: Storage, target: Storage) -> Ledger:
    """Copy a matrix from one storage to another of the same format, and count what moved."""
    assert source.matrix.dtype is target.matrix.dtype
    if isinstance(target, Shards):
        target.clear()
    moved = Ledger()
    columns = Interval(0, min(source.matrix.padded_columns, target.matrix.padded_columns))
    for there in target.parts():
        for here in source.parts():
            rows, wide = here.rows & there.rows, here.columns & there.columns & columns
            if len(rows) and len(wide):
                raw = source.read(here, rows, wide)
                target.write(there, rows, wide, raw)
                moved += _way(source, target, here, there, raw.numel())
    return moved


def _way(source: Storage, target: Storage, here: Part, there: Part, size: int) -> Ledger:
    if source.in_banks or target.in_banks:
        return Ledger(global_read=size * source.in_banks, global_written=size * target.in_banks)
    if here.core is not None and here.core == there.core:
        return Ledger(local=size)
    return Ledger(remote=size)


def deal(target: Storage, raw: Tensor) -> None:
    """Write the bytes of all rows of a matrix."""
    matrix, row_bytes = target.matrix, target.matrix.dtype.row_bytes
    if isinstance(target, Shards):
        target.clear()
    for part in target.parts():
        columns = part.columns & Interval(0, matrix.padded_columns)
        if len(part.rows) and len(columns):
            found = raw[part.rows.slice, row_bytes(columns.start) : row_bytes(columns.stop)]
            target.write(part, part.rows, columns, found)


def collect(source: Storage) -> Tensor:
    """The bytes of all rows of a matrix."""
    matrix, row_bytes = source.matrix, source.matrix.dtype.row_bytes
    raw = torch.zeros(matrix.rows, matrix.row_bytes, dtype=torch.uint8)
    for part in source.parts():
        columns = part.columns & Interval(0, matrix.padded_columns)
        if len(part.rows) and len(columns):
            place = raw[part.rows.slice, row_bytes(columns.start) : row_bytes(columns.stop)]
            place.copy_(source.read(part, part.rows, columns))
    return raw


def fill(target: Storage, values: Tensor) -> None:
    """Write a matrix of numbers from outside the device, rounded to the storage's format."""
    matrix = target.matrix
    raw = stored(torch.nn.functional.pad(values, (0, matrix.padded_columns - matrix.columns)), matrix.dtype)
    deal(target, raw)


def values(source: Storage) -> Tensor:
    """The numbers of a matrix, outside the device: bfloat16 as such, everything else as float32."""
    return numbers(collect(source), source.matrix.dtype)[:, : source.matrix.columns]
