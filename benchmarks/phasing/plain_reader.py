"""The best plain reader of a file: large reads, several in flight, into aligned memory that is used again and again.

It reads into as much memory as the streamed network has to work in, on huge pages where the system has them, and does
nothing with what it has read. Its block size and the reads in flight are those that turn out fastest here.
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

BLOCKS = (1 << 20, 4 << 20, 16 << 20)
IN_FLIGHT = (1, 2, 4, 8)
TRIALS = 3
ANONYMOUS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
Way = tuple[int, int]  # bytes of a block, blocks in flight


class PlainReader:
    """Reads a file from its beginning to its last whole block, round and round into the memory that it is given."""

    def __init__(self, path: Path, memory: memoryview, *, direct: bool, block: int, in_flight: int) -> None:
        self.block, self.in_flight = block, in_flight
        self._memory, self._places = memory, len(memory) // block
        self._fd = os.open(path, os.O_RDONLY | (os.O_DIRECT if direct else 0))
        self.nbytes = os.fstat(self._fd).st_size // block * block
        self._pool = ThreadPoolExecutor(in_flight)

    def read(self) -> None:
        list(self._pool.map(self._lane, range(self.in_flight)))

    def _lane(self, lane: int) -> None:
        for number in range(lane, self.nbytes // self.block, self.in_flight):
            at = number % self._places * self.block
            assert os.preadv(self._fd, [self._memory[at : at + self.block]], number * self.block) == self.block

    def close(self) -> None:
        self._pool.shutdown()
        os.close(self._fd)


@contextmanager
def best_reader(path: Path, *, direct: bool, room: int) -> Iterator[tuple[PlainReader, dict[Way, float]]]:
    """The reader that is fastest here, of every block size and number in flight; and the bytes/s of each of them."""
    ways = [(block, count) for block, count in product(BLOCKS, IN_FLIGHT) if block <= path.stat().st_size]
    memory = mmap.mmap(-1, max([room, *(block * count for block, count in ways)]), flags=ANONYMOUS)
    with contextlib.suppress(OSError, AttributeError):  # not every kernel has them
        memory.madvise(mmap.MADV_HUGEPAGE)
    times: dict[Way, list[float]] = {way: [] for way in ways}
    with ExitStack() as stack:
        readers: dict[Way, PlainReader] = {}
        for block, in_flight in ways:
            reader = PlainReader(path, memoryview(memory), direct=direct, block=block, in_flight=in_flight)
            readers[block, in_flight] = reader
            stack.callback(reader.close)
        for trial in range(TRIALS + 1):  # the first takes fresh pages
            for way in random.sample(ways, len(ways)):
                start = time.perf_counter()
                readers[way].read()
                if trial:
                    times[way].append(time.perf_counter() - start)
        rates = {way: readers[way].nbytes / statistics.median(taken) for way, taken in times.items()}
        yield readers[max(rates, key=lambda way: rates[way])], rates
