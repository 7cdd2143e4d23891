"""Weights where they lie in the page cache: a phase is loaded by mapping its pages, and nothing is copied.

A phase that is no longer computed with is unmapped, so that the process never holds more of the file than its budget
(and up to 4 MB around it, where layers do not begin at huge pages: the system maps what it has read as one).
The pages are those of the file; a lease keeps others from cutting it off under a phase that is being computed with.
Pages that are in the cache are mapped in less time than it takes to wake the thread that loads.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
from collections import deque
from concurrent.futures import Future
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from tessera.errors import TesseraError
from tessera.phased.memory.arena import Region
from tessera.phased.store.layout import Layout
from tessera.phased.store.lease import Lease
from tessera.phased.store.reader import Block, Loading, Reader, Reading
from tessera.phased.store.weights_writer import HUGE_PAGE

POPULATE_READ = 22  # of madvise, since Linux 5.14: map pages now, and report what cannot be read
MOMENT = 250e-6  # s: a phase that is mapped in less is not worth a thread


class MappedReader(Reader):
    """Maps phases of one file. `regions` of it are all the whole file, each for one phase at a time."""

    block = 64 << 20  # mapped at once: with fewer calls it comes less often between who computes and the interpreter

    def __init__(self, reading: Reading) -> None:
        super().__init__(reading)
        try:
            # private: a network that writes into its weights changes its own copy of a page, never the file
            self._map = mmap.mmap(self._fd, 0, access=mmap.ACCESS_COPY)
        except (OSError, ValueError, MemoryError) as error:
            super().close()
            raise TesseraError(
                f"cannot map weights: {getattr(error, 'strerror', None) or error}",
                got=str(reading.file.path),
                do="use the store disk, which needs no addresses for the whole file",
            ) from None
        self._data = torch.frombuffer(self._map, dtype=torch.uint8)
        self._madvise = ctypes.CDLL(None, use_errno=True).madvise  # unlike that of `mmap` it holds no interpreter lock
        self._madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        self._held: dict[int, Layout] = {}
        self._leaving: deque[Layout] = deque()  # phases that the next load unmaps
        self._lease = Lease(reading.file, self._fd)
        self._in_a_moment = False  # whether the phase before was
        self._seen: set[int] = set()  # where blocks begin that have their huge pages
        self._advise(0, self._data.nbytes, mmap.MADV_NOHUGEPAGE)  # kernels without them refuse, which is as well

    def region(self) -> Region:
        """A region to load phases into; the one before is unmapped."""
        return Region(memoryview(self._map), self._data)

    def holds(self, tensor: Tensor) -> bool:
        """Whether a tensor lies in the file."""
        return 0 <= tensor.untyped_storage().data_ptr() - self._data.data_ptr() < self._data.nbytes

    def in_use(self) -> AbstractContextManager[None]:
        return self._lease.in_use()

    def start(self, layout: Layout, memory: memoryview) -> Loading:
        if id(memory) in self._held:
            self._leaving.append(self._held[id(memory)])
        self._held[id(memory)] = layout
        if not self._in_a_moment:
            return super().start(layout, memory)
        loading = Loading(layout, memory, self.block)
        try:
            self._lane(loading)
        except Exception as error:  # is raised to who waits for the phase
            failed: Future[None] = Future()
            failed.set_exception(error)
            loading.lanes.append(failed)
        return loading

    def close(self) -> None:
        self._lease.close()
        super().close()
        self._held.clear()
        self._advise(0, self._data.nbytes, mmap.MADV_DONTNEED)  # the addresses go with the last tensor that has some

    def _lane(self, loading: Loading) -> None:
        with contextlib.suppress(IndexError):  # when no more are left
            while True:
                for run in self._leaving.popleft().runs:
                    self._advise(run.start, run.stop - run.start, mmap.MADV_DONTNEED)
        super()._lane(loading)
        self._in_a_moment = not self._checksums and loading.stop - loading.start < MOMENT

    def _read(self, block: Block) -> None:
        if block.start not in self._seen:
            self._seen.add(block.start)
            self._allow_huge_pages(block)
        failed = self._advise(block.start, len(block.into), POPULATE_READ)
        if failed or not self._lease.held:  # who holds it is asked
            self._file.check_unchanged()
        if failed not in (0, errno.EINVAL):  # an older kernel maps the pages when they are first read
            raise TesseraError(f"cannot map weights: {os.strerror(failed)}", got=str(self._file.path))

    def _allow_huge_pages(self, block: Block) -> None:
        """Huge pages are read faster, stay in the cache and are mapped at once; but never one that others share."""
        start = block.start + -block.start % HUGE_PAGE
        stop = (block.start + len(block.into)) // HUGE_PAGE * HUGE_PAGE
        if start < stop:
            self._advise(start, stop - start, mmap.MADV_HUGEPAGE)

    def _advise(self, start: int, count: int, advice: int) -> int:
        address = ctypes.c_void_p(self._data.data_ptr() + start)
        return ctypes.get_errno() if self._madvise(address, ctypes.c_size_t(count), advice) else 0


def open_reader(reading: Reading) -> Reader:
    """The reader that is asked for."""
    return MappedReader(reading) if reading.mapped else Reader(reading)
