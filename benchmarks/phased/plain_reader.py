"""The fastest plain reader of a file: large reads, several in flight, into aligned memory that is reused.

The memory has the size of the working memory of the streamed network, on huge pages if the system supports them; the
data are not used. Block size and number of reads in flight are the fastest on this machine.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path

BLOCK_BYTES = (1 << 20, 4 << 20, 16 << 20)
READS_IN_FLIGHT = (1, 2, 4, 8)
TRIALS_PER_CONFIG = 3
ANONYMOUS_MAP_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
ReaderConfig = tuple[int, int]  # bytes of a block, blocks in flight


class PlainReader:
    """A reader of all whole blocks of a file into a memory area, which is reused cyclically."""

    def __init__(self, path: Path, memory: memoryview, *, direct: bool, block: int, in_flight: int) -> None:
        self.block, self.in_flight = block, in_flight
        self._memory, self._slots = memory, len(memory) // block
        self._fd = os.open(path, os.O_RDONLY | (os.O_DIRECT if direct else 0))
        self.nbytes = os.fstat(self._fd).st_size // block * block
        self._pool = ThreadPoolExecutor(in_flight)

    def read(self) -> None:
        list(self._pool.map(self._read_lane, range(self.in_flight)))

    def _read_lane(self, lane: int) -> None:
        for number in range(lane, self.nbytes // self.block, self.in_flight):
            at = number % self._slots * self.block
            assert os.preadv(self._fd, [self._memory[at : at + self.block]], number * self.block) == self.block

    def close(self) -> None:
        self._pool.shutdown()
        os.close(self._fd)


@contextmanager
def open_fastest_reader(
    path: Path, *, direct: bool, memory_bytes: int
) -> Iterator[tuple[PlainReader, dict[ReaderConfig, float]]]:
    """Yield the fastest reader over all block sizes and numbers of reads in flight, and the bytes/s of each setting."""
    configs = [(block, count) for block, count in product(BLOCK_BYTES, READS_IN_FLIGHT) if block <= path.stat().st_size]
    memory = mmap.mmap(-1, max([memory_bytes, *(block * count for block, count in configs)]), flags=ANONYMOUS_MAP_FLAGS)
    with contextlib.suppress(OSError, AttributeError):  # some kernels do not support huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    times: dict[ReaderConfig, list[float]] = {config: [] for config in configs}
    with ExitStack() as stack:
        readers: dict[ReaderConfig, PlainReader] = {}
        for block, in_flight in configs:
            reader = PlainReader(path, memoryview(memory), direct=direct, block=block, in_flight=in_flight)
            readers[block, in_flight] = reader
            stack.callback(reader.close)
        for trial in range(TRIALS_PER_CONFIG + 1):  # the first trial is a warm-up, which allocates pages
            for config in random.sample(configs, len(configs)):
                start = time.perf_counter()
                readers[config].read()
                if trial:
                    times[config].append(time.perf_counter() - start)
        rates = {config: readers[config].nbytes / statistics.median(seconds) for config, seconds in times.items()}
        yield readers[max(rates, key=lambda config: rates[config])], rates
