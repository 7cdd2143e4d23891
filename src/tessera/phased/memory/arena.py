"""The arena of working memory: one allocation, which is reused for every phase of every pass.

Allocating and freeing such large blocks for every phase would fragment the heap or cause page faults each time.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Sequence

import torch
from torch import Tensor

from tessera.errors import TesseraError
from tessera.phased.store.layout import round_up_to_page


class MemoryRegion:
    """A page-aligned part of the arena, accessible as bytes (to read a file into) and as tensors (to compute with)."""

    def __init__(self, memory: memoryview, data: Tensor) -> None:
        self.memory, self.data = memory, data

    def view(self, at: int, dtype: torch.dtype, shape: Sequence[int]) -> Tensor:
        """Return a tensor in the region at a byte offset, without a copy."""
        count = torch.Size(shape).numel()
        return self.data[at : at + count * dtype.itemsize].view(dtype).view(tuple(shape))


class WorkingArena:
    """Working memory with regions of given sizes; pages are allocated at the first write, freed with the last view."""

    def __init__(self, sizes: Sequence[int]) -> None:
        sizes = [round_up_to_page(size) for size in sizes]
        self.nbytes = sum(sizes)
        try:
            memory = mmap.mmap(-1, max(self.nbytes, mmap.PAGESIZE), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, MemoryError):
            raise TesseraError(
                "cannot allocate the working memory", got=f"{self.nbytes} bytes", do="lower the budget"
            ) from None
        with contextlib.suppress(OSError, AttributeError):  # some kernels do not support huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)  # fewer pages to pin for each read, and fewer TLB misses
        data, whole = torch.frombuffer(memory, dtype=torch.uint8), memoryview(memory)
        self._start, self._memory = data.data_ptr(), memory
        self.regions: list[MemoryRegion] = []
        at = 0
        for size in sizes:
            self.regions.append(MemoryRegion(whole[at : at + size], data[at : at + size]))
            at += size

    def discard(self, start: int, stop: int) -> None:
        """Return pages to the kernel; their contents are lost, and the next write allocates them again."""
        if start < stop:
            self._memory.madvise(mmap.MADV_DONTNEED, start, stop - start)

    def contains(self, tensor: Tensor) -> bool:
        """Return whether a tensor is in this arena, so that a later load would overwrite it."""
        return 0 <= tensor.untyped_storage().data_ptr() - self._start < self.nbytes
