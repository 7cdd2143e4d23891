"""The best plain reader of a file: large reads, several in flight, into a few aligned buffers that are used again."""

from __future__ import annotations

import mmap
import os
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import product
from pathlib import Path

BLOCKS = (1 << 20, 4 << 20, 16 << 20)
IN_FLIGHT = (1, 2, 4, 8)
TRIALS = 3


class PlainReader:
    """Reads a file from its beginning to its last whole block; nothing is done with what is read."""

    def __init__(self, path: Path, *, direct: bool, block: int, in_flight: int) -> None:
        self._fd = os.open(path, os.O_RDONLY | (os.O_DIRECT if direct else 0))
        self.block, self.in_flight = block, in_flight
        self.nbytes = os.fstat(self._fd).st_size // block * block
        self._buffers = [mmap.mmap(-1, block) for _ in range(in_flight)]
        self._pool = ThreadPoolExecutor(in_flight)

    def read(self) -> None:
        list(self._pool.map(self._lane, range(self.in_flight)))

    def _lane(self, lane: int) -> None:
        for offset in range(lane * self.block, self.nbytes, self.in_flight * self.block):
            assert os.preadv(self._fd, [self._buffers[lane]], offset) == self.block

    def close(self) -> None:
        self._pool.shutdown()
        os.close(self._fd)


@contextmanager
def best_reader(path: Path, *, direct: bool) -> Iterator[PlainReader]:
    """The reader that is fastest here, of every block size and number in flight."""
    rates: dict[tuple[int, int], float] = {}
    size = path.stat().st_size
    for block, in_flight in product((b for b in BLOCKS if b <= size), IN_FLIGHT):
        reader = PlainReader(path, direct=direct, block=block, in_flight=in_flight)
        times = []
        for _ in range(TRIALS):
            start = time.perf_counter()
            reader.read()
            times.append(time.perf_counter() - start)
        rates[block, in_flight] = reader.nbytes / statistics.median(times)
        reader.close()
    block, in_flight = max(rates, key=lambda way: rates[way])
    reader = PlainReader(path, direct=direct, block=block, in_flight=in_flight)
    try:
        yield reader
    finally:
        reader.close()
