"""Reader of weights: large reads, several in flight, directly into working memory.

The reading threads block in the kernel without the interpreter lock, so they use almost no CPU time. With direct I/O
the storage device writes into the buffer; through the page cache the kernel copies, which occupies a core.
"""

from __future__ import annotations

import bisect
import contextlib
import fcntl
import os
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tessera.affinity import get_affinity, set_affinity
from tessera.errors import TesseraError
from tessera.phased.store.layout import PhaseLayout
from tessera.phased.store.weights_file import StoredTensor, WeightsFile

READ_BLOCK_BYTES = 4 << 20
DEFAULT_DIRECT_READS = 4  # reads in flight with direct I/O
MAX_DIRECT_READS = 8  # the same, for phases of many blocks
MAX_BUFFERED_READS = 2  # two concurrent copies already use the full memory bandwidth


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadConfig:
    """The file to read, and the options of reading.

    `direct` bypasses the page cache if the file system supports it. `checksums` are verified after every load. With
    `mapped`, weights are used directly from the page cache and nothing is read. `compute_cores` is the number of cores
    that compute at the same time, `largest_phase` the bytes of the largest phase.
    """

    file: WeightsFile
    direct: bool = False
    checksums: bool = False
    mapped: bool = False
    compute_cores: int = 0
    largest_phase: int = 0


@dataclass(frozen=True, slots=True)
class ReadBlock:
    """One read: its offset in the file, the number of bytes that must be read, and the memory to read into."""

    start: int
    wanted: int
    into: memoryview


class PhaseLoad:
    """The load of one phase into a buffer, in progress or complete."""

    def __init__(
        self,
        layout: PhaseLayout,
        memory: memoryview,
        block: int,
        finish: Callable[[], None] | None = None,
        begin: Callable[[], None] | None = None,
        *,
        copied: bool = False,
    ) -> None:
        self.layout, self.memory = layout, memory
        self.finish = finish  # called in the reading thread after the last read
        self._begin = begin  # called in a reading thread before the first read
        self.blocks: deque[ReadBlock] = deque()
        for run in () if copied else layout.runs:  # a phase that was copied from memory is not read
            for at in range(0, run.stop - run.start, block):
                count = min(run.stop - run.start - at, block)
                into = memory[run.at + at : run.at + at + count]
                # the last page of a file may be incomplete: only the bytes of tensors must be read
                self.blocks.append(ReadBlock(run.start + at, min(count, run.needed - run.start - at), into))
        self.start = self.stop = time.perf_counter()
        self.lanes: list[Future[None]] = []
        self._left, self._lock = len(self.blocks), threading.Lock()
        self._begun = False
        self._begin_lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        return self.layout.stored_bytes

    def begin(self) -> None:
        """Wait until the buffer may be written; called by every reading thread before its first read."""
        if self._begin is not None:
            with self._begin_lock:
                if self._begin is not None:
                    self._begin()
                self._begin = None

    def wait(self) -> None:
        """Wait until the phase is loaded; raise the error of a read that failed."""
        for lane in self.lanes:
            lane.result()

    def cancel(self) -> None:
        """Cancel the load. After the return, nothing is written into the buffer."""
        self.blocks.clear()
        for lane in self.lanes:
            lane.cancel()
        for lane in self.lanes:
            with contextlib.suppress(Exception, CancelledError):
                lane.result()
        self.finish = self._begin = None

    def record_read(self, start: float) -> bool:
        """Record the end of a read; return True for the last read."""
        with self._lock:
            self.start = min(self.start, start) if self._begun else start
            self._begun = True
            self.stop = max(self.stop, time.perf_counter())
            self._left -= 1
            return self._left == 0


class PhaseReader:
    """Reads phases of one file into buffers."""

    block = READ_BLOCK_BYTES

    def __init__(self, config: ReadConfig) -> None:
        self._file = config.file
        self._checksums: Mapping[str, int] = config.file.read_checksums() if config.checksums else {}
        self._parts = config.file.list_parts()
        self._starts = [base for base, _ in self._parts]
        self._fds: list[int] = []
        try:
            for _, file in self._parts:
                self._fds.append(file.open_descriptor())
        except BaseException:
            self._close_files()
            raise
        self.direct = config.direct and all(map(_enable_direct_io, self._fds))
        self._forget = config.direct and not self.direct
        if not self.direct:  # increases the read-ahead of the kernel
            for fd in self._fds:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        cores = get_affinity()
        self._lanes = choose_reads_in_flight(self.direct, len(cores), config.compute_cores, config.largest_phase)
        # Threads inherit the affinity of the thread that starts them; a pinned device would pin them to its own core.
        self._pool = ThreadPoolExecutor(
            self._lanes, thread_name_prefix="tessera-reader", initializer=set_affinity, initargs=(cores,)
        )

    def hold(self) -> AbstractContextManager[None]:
        """Return a context in which loaded weights stay valid; a no-op here, because the weights are copies."""
        return contextlib.nullcontext()

    def start_read(
        self,
        layout: PhaseLayout,
        memory: memoryview,
        finish: Callable[[], None] | None = None,
        begin: Callable[[], None] | None = None,
    ) -> PhaseLoad:
        """Start to read a phase into a buffer. Reads are in the order of the calls.

        `begin` is called before the first read and `finish` after the last one, both in a reading thread.
        """
        loading = PhaseLoad(layout, memory, self.block, finish, begin)
        for _ in range(min(self._lanes, len(loading.blocks))):
            loading.lanes.append(self._pool.submit(self._run_lane, loading))
        return loading

    def read(self, layout: PhaseLayout, memory: memoryview) -> PhaseLoad:
        """Read a phase into a buffer, and wait until it is loaded."""
        loading = self.start_read(layout, memory)
        try:
            loading.wait()
        except BaseException:
            loading.cancel()
            raise
        return loading

    def check_tensors(self, places: Iterable[tuple[StoredTensor, int]], memory: memoryview) -> None:
        """Verify the checksums of tensors, which are at byte offsets in `memory`; a no-op without checksums."""
        for tensor, at in places if self._checksums else ():
            if zlib.crc32(memory[at : at + tensor.nbytes]) != self._checksums.get(tensor.name):
                raise TesseraError(
                    f"the weight {tensor.name} has a wrong checksum",
                    got=str(self._file.path),
                    do="download or write the file again",
                )

    def close(self) -> None:
        """End the reading threads; reads that have not started are dropped."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._close_files()

    def _close_files(self) -> None:
        for fd in self._fds:
            os.close(fd)
        self._fds = []

    def _run_lane(self, loading: PhaseLoad) -> None:
        """Read the remaining blocks of a phase, one after the other, in a reading thread."""
        loading.begin()
        while True:
            try:
                block = loading.blocks.popleft()
            except IndexError:
                return
            start = time.perf_counter()
            self._read(block)
            if loading.record_read(start):
                if self._checksums:
                    with self.hold():
                        self.check_tensors(loading.layout.places, loading.memory)
                if loading.finish is not None:
                    loading.finish()
                    loading.finish = None  # it may refer to this load
                    loading.stop = time.perf_counter()

    def _read(self, block: ReadBlock) -> None:
        done = 0
        number = bisect.bisect_right(self._starts, block.start) - 1
        base, file = self._parts[number]
        fd = self._fds[number]
        while done < block.wanted:
            try:
                count = os.preadv(fd, [block.into[done:]], block.start - base + done)
            except OSError as error:
                raise TesseraError(f"cannot read weights: {error.strerror}", got=str(file.path)) from None
            if count == 0:
                break
            done += count
        file.check_unchanged()
        if done < block.wanted:
            raise TesseraError("the weights file is truncated", got=str(file.path))
        if self._forget:
            os.posix_fadvise(fd, block.start - base, len(block.into), os.POSIX_FADV_DONTNEED)


def choose_reads_in_flight(direct: bool, cores: int, computing: int, largest: int = 0) -> int:
    """Return the number of reads in flight; `computing` is the number of cores that compute.

    Direct reads use no core; buffered reads copy on cores that do not compute. The number is at most the number of
    blocks in the largest phase (`largest` bytes), because reads of the next phase would delay the current phase.

    >>> [choose_reads_in_flight(False, cores, computing=2) for cores in (1, 2, 3, 16)]
    [1, 1, 1, 2]
    >>> choose_reads_in_flight(True, 2, computing=2)
    4
    """
    if not direct:
        return max(1, min(MAX_BUFFERED_READS, cores - computing))
    return MAX_DIRECT_READS if largest >= MAX_DIRECT_READS * READ_BLOCK_BYTES else DEFAULT_DIRECT_READS


def _enable_direct_io(fd: int) -> bool:
    """Switch a descriptor to direct I/O; return False if the file system does not support it."""
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_DIRECT)
    except OSError:
        return False
    return True
