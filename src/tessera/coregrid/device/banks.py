"""Interleaved memory: the pages of a tensor dealt round robin over the banks that all cores share, or the cores."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from tessera.coregrid.device.arena import Arena, Buffer, Cores, OutOfMemory
from tessera.coregrid.device.freelist import FreeList
from tessera.geometry import Interval


class Pages(Protocol):
    """Pages of equal size, in order."""

    @property
    def in_banks(self) -> bool: ...

    def get(self, pages: Interval) -> Tensor:
        """The bytes of consecutive pages, `(pages, bytes)`."""

    def put(self, first: int, data: Tensor) -> None:
        """Write consecutive pages."""

    def free(self) -> None: ...


class Banks:
    """So many banks of equal size; a tensor takes the same addresses in all of them."""

    def __init__(self, count: int, size: int) -> None:
        self.count, self.size = count, size // count
        self.taken = FreeList(self.size)

    @property
    def used(self) -> int:
        """Bytes that are allocated in every bank."""
        return self.taken.used

    def allocate(self, pages: int, page_bytes: int, what: str) -> BankPages:
        """Pages for a tensor: page i lies in bank i modulo their number."""
        slots = -(-pages // self.count)
        place = self.taken.take(slots * page_bytes)
        if place is None:
            raise OutOfMemory(
                f"the banks are out of memory for the {what}",
                got=f"needs {slots * page_bytes:,} bytes of each",
                allowed=f"has {self.taken.largest_gap:,}",
                do="deallocate tensors that are not needed any more",
            )
        return BankPages(self, place, page_bytes)


class BankPages:
    """Pages in banks. Slot after slot the banks lie side by side, so the pages are in order as they stand."""

    in_banks = True

    def __init__(self, banks: Banks, place: Interval, page_bytes: int) -> None:
        self._banks, self._place = banks, place
        self.all = torch.zeros(len(place) // page_bytes * banks.count, page_bytes, dtype=torch.uint8)

    def bank(self, number: int) -> Tensor:
        """The pages of one bank."""
        return self.all[number :: self._banks.count]

    def get(self, pages: Interval) -> Tensor:
        return self.all[pages.start : pages.stop]

    def put(self, first: int, data: Tensor) -> None:
        self.all[first : first + len(data)] = data

    def free(self) -> None:
        self._banks.taken.give(self._place)
        self.all = self.all[:0]


class CorePages:
    """Pages in the cores' own memories: page i lies on core i modulo their number."""

    in_banks = False

    def __init__(self, arena: Arena, pages: int, page_bytes: int, what: str) -> None:
        self._arena, self._bytes = arena, page_bytes
        self._slots = -(-pages // arena.grid.size)
        self._buffer: Buffer = arena.allocate(self._slots * page_bytes, what)
        self._ordered().zero_()

    def get(self, pages: Interval) -> Tensor:
        return self._ordered().reshape(-1, self._bytes)[pages.start : pages.stop]

    def put(self, first: int, data: Tensor) -> None:
        every = self._ordered()
        changed = every.reshape(-1, self._bytes)  # a copy: the pages of a core do not lie side by side
        changed[first : first + len(data)] = data
        every.copy_(changed.view_as(every))

    def free(self) -> None:
        self._arena.free(self._buffer)

    def _ordered(self) -> Tensor:
        """All pages, `(slots, cores, bytes)`."""
        cores = Cores(0, (self._arena.grid.size, 1))
        return self._arena.across(cores, self._buffer, torch.uint8, (self._slots, self._bytes))[:, 0].transpose(0, 1)
