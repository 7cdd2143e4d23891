"""Memories of a device, backed by host memory: the local memories of the cores, and the shared memory banks.

A buffer has the same address on every core, as on the chip. Therefore one free list serves all cores, and a buffer on
several cores is one strided tensor. Pages that are never written use no host memory."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from tessera.coregrid.formats import DataType, decode_rows, encode_rows, float32
from tessera.coregrid.planning.memory import OutOfMemory
from tessera.geometry import Interval, Mesh


@dataclass(slots=True, eq=False)
class Buffer:
    """A range of bytes with an equal address on every core. The arena may move the buffer to another address."""

    place: Interval
    label: str


@dataclass(frozen=True, slots=True)
class StridedCores:
    """A strided 2-D selection of cores.

    Core (i, j) has number `first + i * steps[0] + j * steps[1]`, for i < counts[0] and j < counts[1].
    """

    first: int
    counts: tuple[int, int] = (1, 1)
    steps: tuple[int, int] = (1, 1)


class CoreArena:
    """Local memories of a grid of cores, `size` bytes per core. `size` must be a multiple of the alignment."""

    def __init__(self, grid: Mesh, size: int) -> None:
        assert size % ALIGNMENT_BYTES == 0, "the size of a core's memory must be aligned"
        self.grid, self.size = grid, size
        self._free = FreeList(size)
        self._buffers: list[Buffer] = []
        self._stride = -(-size // 64) * 64
        self._memory = _map_large_pages(grid.size * self._stride)
        self._typed: dict[torch.dtype, Tensor] = {}

    @property
    def used(self) -> int:
        """Allocated bytes per core."""
        return self._free.used

    @property
    def peak(self) -> int:
        """Peak of the allocated bytes per core."""
        return self._free.peak

    @property
    def largest_gap(self) -> int:
        """Size of the largest contiguous free range in bytes per core."""
        return self._free.largest_gap

    def reset_peak(self, at_least: int = 0) -> int:
        """Restart the peak at the current use, or at `at_least` if that is higher. Returns the previous peak."""
        return self._free.reset_peak(at_least)

    def allocate(self, size: int, label: str, *, from_bottom: bool = False, do: str = "") -> Buffer:
        """Allocate `size` bytes on every core: at the highest free address, or at the lowest with `from_bottom`.

        Tensors are allocated from the top, temporary buffers from the bottom. Allocating a tensor may move other
        buffers and so invalidates all views. `do` is the advice of the out-of-memory error.
        """
        if not from_bottom:
            self.compact(align_size(size))
        place = self._free.allocate(align_size(size), from_bottom=from_bottom)
        if place is None:
            available = f"{self._free.largest_gap:,} contiguous bytes, {self.size - self.used:,} of {self.size:,} free"
            raise OutOfMemory(
                f"core (0, 0) and all others of {self.grid.rows}x{self.grid.cols} are out of memory for the {label}",
                got=f"{size:,} bytes",
                allowed=f"up to {available}",
                do=do or "deallocate tensors that are no longer needed",
            )
        buffer = Buffer(place, label)
        self._buffers.append(buffer)
        return buffer

    def free(self, buffer: Buffer) -> None:
        self._free.free(buffer.place)
        self._buffers.remove(buffer)

    def move_to_top(self, buffer: Buffer) -> None:
        """Move a buffer and its contents to the highest free address, to merge the free ranges around the buffer."""
        before = buffer.place
        self._free.free(before)
        place = self._free.allocate(len(before))
        assert place is not None
        if place != before:
            memory = self._memory.view(self.grid.size, self._stride)
            memory[:, place.start : place.stop] = memory[:, before.start : before.stop].clone()
        buffer.place = place

    def compact(self, size: int) -> None:
        """Move all buffers up if `size` bytes are free but not contiguous."""
        if self._free.largest_gap < size <= self.size - self.used:
            for buffer in sorted(self._buffers, key=lambda buffer: -buffer.place.stop):
                self.move_to_top(buffer)

    def view(self, core: int, buffer: Buffer, dtype: torch.dtype, shape: Sequence[int], start: int = 0) -> Tensor:
        """Return a view of a core's buffer as a matrix of `shape`, starting at byte `start` of the buffer."""
        rows, columns = shape
        flat, at = self.view_all(dtype), core * self._stride + buffer.place.start + start
        assert rows * columns * dtype.itemsize + start <= len(buffer.place), f"beyond the {buffer.label}"
        return flat.as_strided((rows, columns), (columns, 1), at // dtype.itemsize)

    def view_cores(
        self, cores: StridedCores, buffer: Buffer, dtype: torch.dtype, shape: Sequence[int], start: int = 0
    ) -> Tensor:
        """Return a view of a buffer on several cores as a tensor `(rows of cores, columns of cores, rows, columns)`."""
        rows, columns = shape
        flat, at = self.view_all(dtype), cores.first * self._stride + buffer.place.start + start
        assert rows * columns * dtype.itemsize + start <= len(buffer.place), f"beyond the {buffer.label}"
        down, right = (step * self._stride // dtype.itemsize for step in cores.steps)
        return flat.as_strided((*cores.counts, rows, columns), (down, right, columns, 1), at // dtype.itemsize)

    def get_address(self, core: int, buffer: Buffer) -> int:
        """Return the byte offset of a core's buffer in the concatenated memories of all cores (see `view_all`)."""
        return core * self._stride + buffer.place.start

    def view_all(self, dtype: torch.dtype) -> Tensor:
        """Return a view of the concatenated memories of all cores as a flat tensor."""
        if dtype not in self._typed:
            self._typed[dtype] = self._memory.view(dtype)
        return self._typed[dtype]


def _map_large_pages(size: int) -> Tensor:
    """Map `size` bytes of host memory, in huge pages if available to reduce TLB misses."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8)


def split_into_progressions(numbers: Sequence[int]) -> list[range]:
    """Split a sequence of core or tile numbers into arithmetic progressions, which strided tensors can cover.

    >>> split_into_progressions([0, 1, 2, 8, 9, 10])
    [range(0, 3), range(8, 11)]
    >>> split_into_progressions([0, 8, 16, 1, 9])
    [range(0, 24, 8), range(1, 17, 8)]
    """
    runs: list[range] = []
    at = 0
    while at < len(numbers):
        step = numbers[at + 1] - numbers[at] if at + 1 < len(numbers) else 1
        stop = at + 1
        while step > 0 and stop < len(numbers) and numbers[stop] - numbers[stop - 1] == step:
            stop += 1
        step = max(step, 1)
        runs.append(range(numbers[at], numbers[at] + (stop - at) * step, step))
        at = stop
    return runs


ALIGNMENT_BYTES = 16  # bytes per transfer
NO_PAGES = torch.empty(0, 0, dtype=torch.uint8)


def align_size(size: int) -> int:
    """Round a size up to the alignment.

    >>> align_size(33)
    48
    """
    return -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


class FreeList:
    """First-fit allocator of one memory: tensors from the top down, temporary buffers from the bottom up.

    >>> memory = FreeList(100)
    >>> memory.allocate(32), memory.allocate(32), memory.allocate(16, from_bottom=True)
    (Interval(68:100), Interval(36:68), Interval(0:16))
    >>> memory.used, memory.largest_gap
    (80, 20)
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.used = self.peak = 0
        self._taken: list[Interval] = []  # sorted by address

    def find_gaps(self) -> list[Interval]:
        """Return the free ranges, sorted by address."""
        edges = [0, *(edge for part in self._taken for edge in (part.start, part.stop)), self.size]
        return [Interval(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if b > a]

    @property
    def largest_gap(self) -> int:
        return max((len(gap) for gap in self.find_gaps()), default=0)

    def allocate(self, size: int, *, from_bottom: bool = False) -> Interval | None:
        """Allocate and return a range of `size` bytes, or return None if no free range is large enough."""
        gaps = self.find_gaps()
        for gap in gaps if from_bottom else reversed(gaps):
            if len(gap) >= size:
                place = Interval(gap.start, gap.start + size) if from_bottom else Interval(gap.stop - size, gap.stop)
                self._taken.append(place)
                self._taken.sort(key=lambda part: part.start)
                self.used += size
                self.peak = max(self.peak, self.used)
                return place
        return None

    def free(self, place: Interval) -> None:
        """Free an allocated range."""
        self._taken.remove(place)
        self.used -= len(place)

    def reset_peak(self, at_least: int = 0) -> int:
        """Restart the peak at the current use, or at `at_least` if that is higher. Returns the previous peak."""
        before, self.peak = self.peak, max(self.used, at_least)
        return before


@dataclass(frozen=True, slots=True)
class BufferMatrix:
    """One matrix of `rows` x `columns` values per core, stored from byte `start` of a buffer.

    The matrices of all cores together are a tensor `(rows of cores, columns of cores, rows, columns)`.
    """

    arena: CoreArena
    cores: StridedCores
    buffer: Buffer
    dtype: DataType
    rows: int
    columns: int
    start: int = 0

    @property
    def raw(self) -> Tensor:
        """View of the bytes: `(rows of cores, columns of cores, rows, bytes per row)`."""
        shape = self.rows, self.dtype.count_row_bytes(self.columns)
        return self.arena.view_cores(self.cores, self.buffer, torch.uint8, shape, self.start)

    @property
    def typed(self) -> Tensor:
        """View of the values. Block formats are not supported."""
        assert not self.dtype.is_block
        return self.arena.view_cores(self.cores, self.buffer, self.dtype.torch, (self.rows, self.columns), self.start)

    def load_values(self) -> Tensor:
        """Return the values as float32: a view if the format is float32, else a converted copy."""
        if self.dtype is float32:
            return self.typed
        if self.dtype.is_block:
            raw = self.raw
            return decode_rows(raw.reshape(-1, raw.shape[-1]), self.dtype).view(*raw.shape[:-1], -1)
        return self.typed.float()

    def store_values(self, values: Tensor) -> None:
        """Round values to the format and write them to the first columns. Block formats zero the other columns."""
        if self.dtype.is_block:
            padded = F.pad(values, (0, self.columns - values.shape[-1]))
            raw = encode_rows(padded.reshape(-1, self.columns), self.dtype)
            self.raw.copy_(raw.view(*padded.shape[:-1], -1))
        else:
            self.typed[..., : values.shape[-1]].copy_(values)


class PageStorage(Protocol):
    """Pages of equal size, in order."""

    def read_pages(self, pages: Interval) -> Tensor:
        """Return consecutive pages as bytes of shape `(pages, bytes per page)`."""

    def write_pages(self, first: int, data: Tensor) -> None:
        """Write bytes `(pages, bytes per page)` to consecutive pages from page `first` on."""

    def free(self) -> None: ...


class MemoryBanks:
    """Shared memory banks of equal size. A tensor has an equal address in all banks."""

    def __init__(self, count: int, size: int) -> None:
        self.count, self.size = count, size // count
        self.free_list = FreeList(self.size)

    @property
    def used(self) -> int:
        """Allocated bytes per bank."""
        return self.free_list.used

    def allocate(self, pages: int, page_bytes: int, label: str) -> BankPages:
        """Allocate the pages of a tensor. Page i is in bank i modulo the number of banks."""
        slots = -(-pages // self.count)
        place = self.free_list.allocate(slots * page_bytes)
        if place is None:
            raise OutOfMemory(
                f"the memory banks are out of memory for the {label}",
                got=f"{slots * page_bytes:,} bytes per bank",
                allowed=f"up to {self.free_list.largest_gap:,}",
                do="deallocate tensors that are no longer needed",
            )
        return BankPages(self, place, page_bytes)


class BankPages:
    """Pages of a tensor in the memory banks. The model stores the pages in page order."""

    def __init__(self, banks: MemoryBanks, place: Interval, page_bytes: int) -> None:
        self._banks, self._place = banks, place
        self.all = torch.zeros(len(place) // page_bytes * banks.count, page_bytes, dtype=torch.uint8)

    def read_pages(self, pages: Interval) -> Tensor:
        return self.all[pages.start : pages.stop]

    def write_pages(self, first: int, data: Tensor) -> None:
        self.all[first : first + len(data)] = data

    def free(self) -> None:
        self._banks.free_list.free(self._place)
        self.all = NO_PAGES


class CorePages:
    """Pages of a tensor in the memories of the cores. Page i is on core i modulo the number of cores."""

    def __init__(self, arena: CoreArena, pages: int, page_bytes: int, label: str) -> None:
        self._arena, self._bytes = arena, page_bytes
        self._slots = -(-pages // arena.grid.size)
        self._buffer: Buffer = arena.allocate(self._slots * page_bytes, label)
        self._view_pages().zero_()

    def read_pages(self, pages: Interval) -> Tensor:
        return self._view_pages().reshape(-1, self._bytes)[pages.start : pages.stop]

    def write_pages(self, first: int, data: Tensor) -> None:
        every = self._view_pages()
        changed = every.reshape(-1, self._bytes)  # a copy, because the pages of a core are not contiguous
        changed[first : first + len(data)] = data
        every.copy_(changed.view_as(every))

    def free(self) -> None:
        self._arena.free(self._buffer)

    def _view_pages(self) -> Tensor:
        """Return a view of all pages with shape `(pages per core, cores, bytes per page)`."""
        cores = StridedCores(0, (self._arena.grid.size, 1))
        return self._arena.view_cores(cores, self._buffer, torch.uint8, (self._slots, self._bytes))[:, 0].transpose(
            0, 1
        )
