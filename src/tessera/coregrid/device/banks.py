"""Interleaved memory: the pages of a tensor are distributed round robin over the memory banks, or over the cores."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from tessera.coregrid.device.arena import Buffer, CoreArena, FreeList, StridedCores
from tessera.coregrid.planning.memory import OutOfMemory
from tessera.geometry import Interval


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
        self.all = self.all[:0]


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
