"""Large reads, several in flight, straight into working memory.

The reading threads sleep in the kernel for milliseconds at a time and hold no lock of the interpreter meanwhile, so
that they take next to nothing from the cores that compute. Past the page cache (`direct`) the device writes into the
buffer by itself; through it the kernel copies, which keeps a core busy.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
import zlib
from collections import deque
from collections.abc import Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tessera.errors import TesseraError
from tessera.phased.store.layout import Layout
from tessera.phased.store.weights_file import WeightsFile

BLOCK = 4 << 20  # bytes of one read
DIRECT_IN_FLIGHT, MOST_IN_FLIGHT = 4, 8  # past the page cache; the most for phases that have so many blocks
BUFFERED_IN_FLIGHT = 2  # at most: two copies at a time already take what the memory gives


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What to read and how: `direct` past the page cache where the file system can do that, `checksums` verified.

    With `mapped` nothing is read: weights are computed with where they lie in the page cache. `computing` is the number
    of cores that are computed on meanwhile, `largest` the bytes of the largest phase.
    """

    file: WeightsFile
    direct: bool = False
    checksums: bool = False
    mapped: bool = False
    computing: int = 0
    largest: int = 0


@dataclass(frozen=True, slots=True)
class Block:
    """One read: where in the file, how much of it has to be there, and the memory that it goes to."""

    start: int
    wanted: int
    into: memoryview


class Loading:
    """One phase on its way into a buffer."""

    def __init__(self, layout: Layout, memory: memoryview, block: int) -> None:
        self.layout, self.memory = layout, memory
        self.blocks: deque[Block] = deque()
        for run in layout.runs:
            for at in range(0, run.stop - run.start, block):
                count = min(run.stop - run.start - at, block)
                into = memory[run.at + at : run.at + at + count]
                # the last page of a file may be cut off, of which no more is wanted than tensors lie in it
                self.blocks.append(Block(run.start + at, min(count, run.needed - run.start - at), into))
        self.start = self.stop = time.perf_counter()
        self.lanes: list[Future[None]] = []
        self._left, self._lock = len(self.blocks), threading.Lock()
        self._begun = False

    @property
    def nbytes(self) -> int:
        return self.layout.stored_bytes

    def wait(self) -> None:
        """Return when the phase is there; raise what went wrong."""
        for lane in self.lanes:
            lane.result()

    def settle(self) -> None:
        """Let go of a phase that is no longer wanted: when this returns, nothing is written into its buffer."""
        self.blocks.clear()
        for lane in self.lanes:
            lane.cancel()
        for lane in self.lanes:
            with contextlib.suppress(Exception, CancelledError):
                lane.result()

    def note(self, start: float) -> bool:
        """Note a read that has ended; True for the last one."""
        with self._lock:
            self.start = min(self.start, start) if self._begun else start
            self._begun = True
            self.stop = max(self.stop, time.perf_counter())
            self._left -= 1
            return self._left == 0


class Reader:
    """Reads phases of one file."""

    block = BLOCK

    def __init__(self, reading: Reading) -> None:
        self._file = reading.file
        self._checksums: Mapping[str, int] = reading.file.checksums() if reading.checksums else {}
        self._fd = reading.file.open_again()
        self.direct = reading.direct and _past_page_cache(self._fd)
        self._forget = reading.direct and not self.direct
        if not self.direct:  # reads further ahead where the file is not cached
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        cores = os.sched_getaffinity(0)
        self._lanes = in_flight(self.direct, len(cores), reading.computing, reading.largest)
        # A pool starts its threads from whoever submits to it: a device would pin them to the core that it computes on.
        self._pool = ThreadPoolExecutor(
            self._lanes, thread_name_prefix="tessera-reader", initializer=os.sched_setaffinity, initargs=(0, cores)
        )

    def in_use(self) -> AbstractContextManager[None]:
        """Holds what was loaded while it is computed with; what was copied stays by itself."""
        return contextlib.nullcontext()

    def start(self, layout: Layout, memory: memoryview) -> Loading:
        """Begin to read a phase into a buffer; phases are read in the order in which they were asked for."""
        loading = Loading(layout, memory, self.block)
        for _ in range(min(self._lanes, len(loading.blocks))):
            loading.lanes.append(self._pool.submit(self._lane, loading))
        return loading

    def read(self, layout: Layout, memory: memoryview) -> Loading:
        """Read a phase and return when it is there."""
        loading = self.start(layout, memory)
        try:
            loading.wait()
        except BaseException:
            loading.settle()
            raise
        return loading

    def close(self) -> None:
        """End the reading threads; reads that have not begun are dropped."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _lane(self, loading: Loading) -> None:
        """Read blocks until there are no more; the next lane of the pool goes on with the next phase."""
        while True:
            try:
                block = loading.blocks.popleft()
            except IndexError:
                return
            start = time.perf_counter()
            self._read(block)
            if loading.note(start) and self._checksums:
                self._verify(loading)

    def _read(self, block: Block) -> None:
        done = 0
        while done < block.wanted:
            try:
                found = os.preadv(self._fd, [block.into[done:]], block.start + done)
            except OSError as error:
                raise TesseraError(f"cannot read weights: {error.strerror}", got=str(self._file.path)) from None
            if found == 0:
                break
            done += found
        self._file.check_unchanged()
        if done < block.wanted:
            raise TesseraError("the file of weights ended early", got=str(self._file.path))
        if self._forget:
            os.posix_fadvise(self._fd, block.start, len(block.into), os.POSIX_FADV_DONTNEED)

    def _verify(self, loading: Loading) -> None:
        with self.in_use():
            for tensor, at in loading.layout.places:
                if zlib.crc32(loading.memory[at : at + tensor.nbytes]) != self._checksums.get(tensor.name):
                    raise TesseraError(
                        f"{tensor.name} is damaged: its checksum is another",
                        got=str(self._file.path),
                        do="fetch it again",
                    )


def in_flight(direct: bool, cores: int, computing: int, largest: int = 0) -> int:
    """How many reads go on at a time: those past the page cache sleep, others copy on cores that nobody computes on.

    More than a phase has blocks would be of the phase after it, and keep this one waiting.

    >>> [in_flight(False, cores, computing=2) for cores in (1, 2, 3, 16)], in_flight(True, 2, computing=2)
    ([1, 1, 1, 2], 4)
    """
    if not direct:
        return max(1, min(BUFFERED_IN_FLIGHT, cores - computing))
    return MOST_IN_FLIGHT if largest >= MOST_IN_FLIGHT * BLOCK else DIRECT_IN_FLIGHT


def _past_page_cache(fd: int) -> bool:
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_DIRECT)
    except OSError:
        return False
    return True
