"""Weights used directly from the page cache: a phase is loaded by mapping its pages, without a copy.

A phase that has been computed is unmapped, so the process never holds more of the file than its budget (plus up to
4 MiB around it if layers are not aligned to huge pages, because the kernel maps whole huge pages). A lease prevents
other programs from truncating the file while a phase is computed. Mapping cached pages takes less time than waking the
loading thread, so after a phase that mapped fast, the next phase is mapped in the calling thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from tessera.errors import TesseraError
from tessera.phased.memory.arena import MemoryRegion
from tessera.phased.store.layout import PhaseLayout
from tessera.phased.store.lease import FileLease
from tessera.phased.store.reader import PhaseLoad, PhaseReader, ReadBlock, ReadConfig
from tessera.phased.store.weights_writer import HUGE_PAGE_BYTES

MADV_POPULATE_READ = 22  # since Linux 5.14; not defined by Python: map pages now, and report read errors
INLINE_LIMIT_SECONDS = 250e-6  # after a faster mapping, the next phase is mapped in the calling thread


class MappedReader(PhaseReader):
    """A reader that maps the phases of one file. A region is the whole file, with one phase mapped at a time."""

    block = 64 << 20  # bytes mapped by one system call: large, so that the interpreter lock is taken rarely

    def __init__(self, config: ReadConfig) -> None:
        if len(config.file.list_parts()) > 1:
            raise TesseraError("weights in several files cannot be mapped", do="use store='disk'")
        super().__init__(config)
        try:
            # private: a network that writes into its weights changes a copy of the page, never the file
            self._map = mmap.mmap(self._fds[0], 0, access=mmap.ACCESS_COPY)
        except (OSError, ValueError, MemoryError) as error:
            super().close()
            raise TesseraError(
                f"cannot map weights: {getattr(error, 'strerror', None) or error}",
                got=str(config.file.path),
                do="use store='disk', which does not map the file",
            ) from None
        self._data = torch.frombuffer(self._map, dtype=torch.uint8)
        self._madvise = ctypes.CDLL(
            None, use_errno=True
        ).madvise  # unlike mmap.madvise, it releases the interpreter lock
        self._madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        self._mapped_phases: dict[int, PhaseLayout] = {}
        self._leaving: deque[PhaseLayout] = deque()  # phases that the next load unmaps
        self._kept: list[
            tuple[int, int]
        ] = []  # runs with pages that were written, which are copies of the file's pages
        self._lease = FileLease(config.file, self._fds[0])
        self._maps_fast = False  # whether the previous phase was mapped within INLINE_LIMIT_SECONDS
        self._advised: set[int] = set()  # starts of the blocks for which huge pages were enabled
        self._advise(0, self._data.nbytes, mmap.MADV_NOHUGEPAGE)  # fails harmlessly on kernels without huge pages

    def get_region(self) -> MemoryRegion:
        """Return a region to load phases into; loading a phase unmaps the phase before it."""
        return MemoryRegion(memoryview(self._map), self._data)

    def contains(self, tensor: Tensor) -> bool:
        """Return whether a tensor is in the mapped file."""
        return 0 <= tensor.untyped_storage().data_ptr() - self._data.data_ptr() < self._data.nbytes

    def keep_pages(self, layout: PhaseLayout) -> None:
        """Never unmap the pages of a phase: it was written into, and views of it may be in use."""
        self._kept += [(run.start, run.stop) for run in layout.runs]

    def hold(self) -> AbstractContextManager[None]:
        return self._lease.hold()

    def start_read(
        self,
        layout: PhaseLayout,
        memory: memoryview,
        finish: Callable[[], None] | None = None,
        begin: Callable[[], None] | None = None,
    ) -> PhaseLoad:
        assert finish is None, "mapped weights are not decoded, and not copied to a device"
        assert begin is None
        if id(memory) in self._mapped_phases:
            self._leaving.append(self._mapped_phases[id(memory)])
        self._mapped_phases[id(memory)] = layout
        if not self._maps_fast:
            return super().start_read(layout, memory)
        loading = PhaseLoad(layout, memory, self.block)
        try:
            self._run_lane(loading)
        except Exception as error:  # `PhaseLoad.wait` raises it
            failed: Future[None] = Future()
            failed.set_exception(error)
            loading.lanes.append(failed)
        return loading

    def close(self) -> None:
        self._lease.close()
        super().close()
        self._mapped_phases.clear()
        self._advise(
            0, self._data.nbytes, mmap.MADV_DONTNEED
        )  # the last tensor that uses the mapping frees its addresses

    def _run_lane(self, loading: PhaseLoad) -> None:
        with contextlib.suppress(IndexError):  # no phases are left to unmap
            while True:
                for run in self._leaving.popleft().runs:
                    if not any(start < run.stop and run.start < stop for start, stop in self._kept):
                        self._advise(run.start, run.stop - run.start, mmap.MADV_DONTNEED)
        super()._run_lane(loading)
        self._maps_fast = not self._checksums and loading.stop - loading.start < INLINE_LIMIT_SECONDS

    def _read(self, block: ReadBlock) -> None:
        if block.start not in self._advised:
            self._advised.add(block.start)
            self._allow_huge_pages(block)
        failed = self._advise(block.start, len(block.into), MADV_POPULATE_READ)
        if failed or not self._lease.held:  # with a lease, the check is unnecessary
            self._file.check_unchanged()
        if failed not in (0, errno.EINVAL):  # older kernels map the pages when they are first read
            raise TesseraError(f"cannot map weights: {os.strerror(failed)}", got=str(self._file.path))

    def _allow_huge_pages(self, block: ReadBlock) -> None:
        """Enable huge pages inside a block, which are faster to map; a huge page must not include other phases."""
        start = block.start + -block.start % HUGE_PAGE_BYTES
        stop = (block.start + len(block.into)) // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES
        if start < stop:
            self._advise(start, stop - start, mmap.MADV_HUGEPAGE)

    def _advise(self, start: int, count: int, advice: int) -> int:
        address = ctypes.c_void_p(self._data.data_ptr() + start)
        return ctypes.get_errno() if self._madvise(address, ctypes.c_size_t(count), advice) else 0


def open_reader(config: ReadConfig) -> PhaseReader:
    """Open the reader of a file: one that maps the file with `config.mapped`, otherwise one that reads it."""
    return MappedReader(config) if config.mapped else PhaseReader(config)
