"""The cores' own memories: bounded, allocated in step on all cores, with real bytes behind every buffer.

Every buffer has the same address on every core, as on the chip, so one list of what is free serves all of them and a
buffer seen across cores is one strided tensor. Pages that nothing is written to cost nothing.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tessera.coregrid.device.freelist import ALIGNMENT, FreeList, aligned
from tessera.errors import TesseraError
from tessera.geometry import Interval, Mesh


class OutOfMemory(TesseraError):
    """A buffer does not fit a core's memory, or the banks."""


@dataclass(slots=True, eq=False)
class Buffer:
    """A range of bytes on every core; it may be moved to another place."""

    place: Interval
    what: str


@dataclass(frozen=True, slots=True)
class Cores:
    """Cores in rows and columns, evenly apart: the first, how many there are, and how far it is to the next."""

    first: int
    counts: tuple[int, int] = (1, 1)
    steps: tuple[int, int] = (1, 1)


class Arena:
    """The memories of a grid of cores, `size` bytes each: whole units of what a core moves at once."""

    def __init__(self, grid: Mesh, size: int) -> None:
        assert size % ALIGNMENT == 0, "tensors lie from the top down, and all of them on whole units"
        self.grid, self.size = grid, size
        self._free = FreeList(size)
        self._buffers: list[Buffer] = []
        self._stride = -(-size // 64) * 64
        self._memory = _in_large_pages(grid.size * self._stride)
        self._typed: dict[torch.dtype, Tensor] = {}

    @property
    def used(self) -> int:
        """Bytes that are allocated on every core."""
        return self._free.used

    @property
    def peak(self) -> int:
        """The high-water mark of every core."""
        return self._free.peak

    def reset_peak(self, at_least: int = 0) -> int:
        """Begin a new high-water mark at what is allocated now, or at a mark of before; gives the old one."""
        return self._free.reset_peak(at_least)

    def allocate(self, size: int, what: str, *, from_bottom: bool = False, do: str = "") -> Buffer:
        """A buffer on every core: of a tensor from the top down, of a running operation `from_bottom` up.

        To make room for a tensor others may be moved; so no view of a buffer is kept over an allocation.
        """
        if not from_bottom:
            self.make_room(aligned(size))
        place = self._free.take(aligned(size), from_bottom=from_bottom)
        if place is None:
            room = f"{self._free.largest_gap:,} bytes in one piece, {self.size - self.used:,} of {self.size:,} free"
            raise OutOfMemory(
                f"core (0, 0) of {self.grid.rows}x{self.grid.cols} is out of memory for the {what}, as every other",
                got=f"needs {size:,} bytes",
                allowed=f"has {room}",
                do=do or "deallocate tensors that are not needed any more",
            )
        buffer = Buffer(place, what)
        self._buffers.append(buffer)
        return buffer

    def free(self, buffer: Buffer) -> None:
        self._free.give(buffer.place)
        self._buffers.remove(buffer)

    def raise_up(self, buffer: Buffer) -> None:
        """Move a buffer as high as it goes, to join the gaps around it; its bytes come along."""
        before = buffer.place
        self._free.give(before)
        place = self._free.take(len(before))
        assert place is not None
        if place != before:
            memory = self._memory.view(self.grid.size, self._stride)
            memory[:, place.start : place.stop] = memory[:, before.start : before.stop].clone()
        buffer.place = place

    def make_room(self, size: int) -> None:
        """If so many bytes are free, but not in one piece, move all buffers up."""
        if self._free.largest_gap < size <= self.size - self.used:
            for buffer in sorted(self._buffers, key=lambda buffer: -buffer.place.stop):
                self.raise_up(buffer)

    def view(self, core: int, buffer: Buffer, dtype: torch.dtype, shape: Sequence[int], start: int = 0) -> Tensor:
        """A matrix in a core's buffer, from a byte of it on."""
        rows, columns = shape
        flat, at = self.as_numbers(dtype), core * self._stride + buffer.place.start + start
        assert rows * columns * dtype.itemsize + start <= len(buffer.place), f"beyond the {buffer.what}"
        return flat.as_strided((rows, columns), (columns, 1), at // dtype.itemsize)

    def across(self, cores: Cores, buffer: Buffer, dtype: torch.dtype, shape: Sequence[int], start: int = 0) -> Tensor:
        """The same matrix of many cores at once, `(rows of cores, columns of cores, rows, columns)`."""
        rows, columns = shape
        flat, at = self.as_numbers(dtype), cores.first * self._stride + buffer.place.start + start
        assert rows * columns * dtype.itemsize + start <= len(buffer.place), f"beyond the {buffer.what}"
        down, right = (step * self._stride // dtype.itemsize for step in cores.steps)
        return flat.as_strided((*cores.counts, rows, columns), (down, right, columns, 1), at // dtype.itemsize)

    def address(self, core: int, buffer: Buffer) -> int:
        """Where a core's buffer begins among the bytes of all memories."""
        return core * self._stride + buffer.place.start

    def as_numbers(self, dtype: torch.dtype) -> Tensor:
        """All memories, one after the other, as numbers of a kind."""
        if dtype not in self._typed:
            self._typed[dtype] = self._memory.view(dtype)
        return self._typed[dtype]


def _in_large_pages(size: int) -> Tensor:
    """Bytes in large pages where the system has them: blocks lie all over a memory, each looked up by its page."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8)


def progressions(numbers: Sequence[int]) -> list[range]:
    """Numbers of cores or tiles in order, as runs of equal steps: each can be seen as one tensor.

    >>> progressions([0, 1, 2, 8, 9, 10])
    [range(0, 3), range(8, 11)]
    >>> progressions([0, 8, 16, 1, 9])
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
