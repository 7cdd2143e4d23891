"""Working memory: one piece that is reserved once and used again for every phase of every pass.

Freed and allocated anew for every phase, blocks of such sizes would stay with the process as garbage, or cost fresh
pages each time.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Sequence

import torch
from torch import Tensor

from tessera.errors import TesseraError
from tessera.phased.store.layout import page_up


class Region:
    """A page-aligned part of the arena, as bytes to read into and as tensors to compute with."""

    def __init__(self, memory: memoryview, data: Tensor) -> None:
        self.memory, self.data = memory, data

    def view(self, at: int, dtype: torch.dtype, shape: Sequence[int]) -> Tensor:
        """Numbers that lie in the region from a byte on; nothing is copied."""
        count = torch.Size(shape).numel()
        return self.data[at : at + count * dtype.itemsize].view(dtype).view(tuple(shape))


class Arena:
    """Regions of given sizes; memory is taken page by page when it is first written, and freed with the last view."""

    def __init__(self, sizes: Sequence[int]) -> None:
        sizes = [page_up(size) for size in sizes]
        self.nbytes = sum(sizes)
        try:
            memory = mmap.mmap(-1, max(self.nbytes, mmap.PAGESIZE), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, MemoryError):
            raise TesseraError("no memory for the budget", got=f"{self.nbytes} bytes", do="lower the budget") from None
        with contextlib.suppress(OSError, AttributeError):  # not every kernel has them
            memory.madvise(mmap.MADV_HUGEPAGE)  # fewer pages to pin for each read, fewer to look up in a product
        data, whole = torch.frombuffer(memory, dtype=torch.uint8), memoryview(memory)
        self._start = data.data_ptr()
        self.regions: list[Region] = []
        at = 0
        for size in sizes:
            self.regions.append(Region(whole[at : at + size], data[at : at + size]))
            at += size

    def holds(self, tensor: Tensor) -> bool:
        """Whether a tensor lies in working memory, where it is overwritten by the next load."""
        return 0 <= tensor.untyped_storage().data_ptr() - self._start < self.nbytes
