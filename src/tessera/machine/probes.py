"""Measure the rates of this host: matrix products, memory, storage.

A rate is the best of several short repetitions, because noise can only slow a repetition down.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tessera.errors import TesseraError


@dataclass(frozen=True, slots=True, kw_only=True)
class BestRate:
    """The highest rate of several repetitions, and the shortfall of the median repetition as a fraction of the best."""

    rate: float
    spread: float


def time_call(work: Callable[[], object]) -> float:
    """Return the seconds that one call of `work` takes."""
    start = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - start) / 1e9


MIN_CALLS = 3


def measure_best_rate(
    work: Callable[[], object],
    amount: float,
    *,
    budget: float,
    most: int = 50,
    before: Callable[[], object] | None = None,
    time_call: Callable[[Callable[[], object]], float] = time_call,
) -> BestRate:
    """Measure the highest rate of `work`, whose calls do `amount` FLOPs or move `amount` bytes.

    It is called at least three times, then until `budget` seconds have passed, at most `most` times. `before` runs
    before each repetition and is not timed. `time_call` returns the seconds of one call.
    """
    end = time.perf_counter() + budget
    times: list[float] = []
    while len(times) < MIN_CALLS or (len(times) < most and time.perf_counter() < end):
        if before is not None:
            before()
        times.append(max(time_call(work), 1e-9))
    times.sort()
    middle = times[len(times) // 2]
    return BestRate(rate=amount / times[0], spread=1 - times[0] / middle)


GEMM_DTYPES = ("float32", "float64", "bfloat16", "float16", "int8")
MATRIX_SIZES = (64, 128, 256, 512, 1024, 2048)
# Maximum seconds of a repetition. Dtypes without hardware support are a hundred times slower and get small matrices.
MAX_CALL_SECONDS = 0.1


def measure_gemm_rate(dtype: str, threads: int, *, budget: float, smallest: int = 0) -> tuple[BestRate, int] | None:
    """Measure the FLOP/s of a square matrix product; return the rate and the matrix size.

    The size is the largest whose product takes at most MAX_CALL_SECONDS, but at least `smallest`. Callers pass the size
    chosen for fewer threads, so that a preempted trial does not select a tiny size. Returns None if torch has no matrix
    product for the dtype.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for size in (s for s in MATRIX_SIZES if s >= smallest):
            product = build_matrix_product(dtype, size)
            if product is None:
                return None
            trial = min(time_call(product) for _ in range(3))
            if size == MATRIX_SIZES[-1] or trial * 8 > MAX_CALL_SECONDS:  # the next size takes eight times as long
                return measure_best_rate(product, 2.0 * size**3, budget=budget), size
        raise AssertionError("the last size always returns")
    finally:
        torch.set_num_threads(before)


def build_matrix_product(dtype: str, size: int, device: str = "cpu") -> Callable[[], object] | None:
    """Return a warmed-up function that multiplies two `size` x `size` matrices, or None if torch cannot."""
    import torch

    kind: torch.dtype = getattr(torch, dtype)
    try:
        if dtype == "int8":
            a, b = (torch.randint(-100, 100, (size, size), dtype=kind).to(device) for _ in range(2))
            # The only int8 product with int32 accumulation in torch; it has no public name.
            torch._int_mm(a, b)
            return lambda: torch._int_mm(a, b)
        x, y = (torch.randn(size, size).to(kind).to(device) for _ in range(2))
        out = torch.mm(x, y)
        return lambda: torch.mm(x, y, out=out)
    except (torch.AcceleratorError, torch.OutOfMemoryError):
        raise
    except (AttributeError, NotImplementedError, RuntimeError):
        return None


MIN_ARRAY_BYTES, MAX_ARRAY_BYTES = 64 << 20, 512 << 20


def choose_array_bytes() -> int:
    """Return an array size in bytes that exceeds the caches: four times the last-level cache, within limits."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    texts = [path.read_text().strip() for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    sizes = [int(text[:-1]) * units[text[-1]] for text in texts if text[-1:] in units]
    # Three arrays together may take at most an eighth of the free memory.
    limit = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 24
    return max(MIN_ARRAY_BYTES, min(4 * max(sizes, default=0), MAX_ARRAY_BYTES, limit))


def measure_memory_rate(kind: Literal["copy", "triad"], threads: int, *, size: int, budget: float) -> BestRate:
    """Measure the memory bandwidth in bytes/s with arrays of `size` bytes.

    The kind `copy` counts the copied bytes once; `triad` (a = b + s * c) counts the bytes of all three arrays. As in
    STREAM, cache lines that are fetched only to be overwritten (write-allocate) do not count.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        b, c = (torch.ones(size // 4) for _ in range(2))
        if kind == "copy":
            return measure_best_rate(lambda: c.copy_(b), float(size), budget=budget)
        a = torch.zeros(size // 4)
        return measure_best_rate(lambda: torch.add(b, c, alpha=0.5, out=a), 3.0 * size, budget=budget)
    finally:
        torch.set_num_threads(before)


READ_BLOCK_BYTES = 4 << 20
READS_IN_FLIGHT = 4
_NO_SPACE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageRates:
    """Bytes/s of reading a file without (cold) and with (warm) the page cache; `method` tells how it was bypassed."""

    cold: BestRate
    warm: BestRate
    method: str


def measure_storage_rates(
    directory: Path, *, size: int, budget: float, progress: Callable[[str], None] = lambda _: None
) -> StorageRates:
    """Measure the bytes/s of reading a temporary file of `size` bytes in `directory`, with several blocks in flight.

    The file is unlinked, so the system frees it even if this process is killed. Cold reads bypass the page cache of
    this system; caches of a hypervisor or a disk controller cannot be bypassed.
    """
    size = max(size // READ_BLOCK_BYTES, READS_IN_FLIGHT) * READ_BLOCK_BYTES
    try:
        with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
            progress(f"writing a temporary file of {size >> 20} MiB")
            _fill_file(file.fileno(), size)
            return _measure_reads(file.fileno(), size, budget, progress)
    except OSError as error:
        if error.errno in _NO_SPACE_ERRORS:
            raise TesseraError(
                f"not enough space for a temporary file of {size >> 20} MiB in {directory}",
                do="choose another directory",
            ) from None
        raise TesseraError(f"cannot measure storage in {directory}: {error.strerror}") from None


def _fill_file(fd: int, size: int) -> None:
    os.posix_fallocate(fd, 0, size)  # fails immediately if the disk is full
    block = os.urandom(READ_BLOCK_BYTES)
    for offset in range(0, size, READ_BLOCK_BYTES):
        written = 0
        while written < READ_BLOCK_BYTES:
            written += os.pwrite(fd, block[written:], offset + written)
    os.fsync(fd)


def _measure_reads(fd: int, size: int, budget: float, progress: Callable[[str], None]) -> StorageRates:
    # Anonymous maps are page-aligned, which O_DIRECT requires.
    buffers = [mmap.mmap(-1, READ_BLOCK_BYTES) for _ in range(READS_IN_FLIGHT)]

    def drop_cache() -> None:
        os.posix_fadvise(fd, 0, size, os.POSIX_FADV_DONTNEED)

    def read_lane(lane: int) -> None:
        for offset in range(lane * READ_BLOCK_BYTES, size, READS_IN_FLIGHT * READ_BLOCK_BYTES):
            if os.preadv(fd, [buffers[lane]], offset) != READ_BLOCK_BYTES:
                raise OSError(errno.EIO, "the temporary file is shorter than written")

    with ThreadPoolExecutor(READS_IN_FLIGHT) as pool:

        def read_all() -> None:
            list(pool.map(read_lane, range(READS_IN_FLIGHT)))

        progress("reading the file without the page cache")
        drop_cache()
        if _set_direct_io(fd, True):
            method = f"O_DIRECT, {READS_IN_FLIGHT} reads of {READ_BLOCK_BYTES >> 20} MiB in flight"
            cold = measure_best_rate(read_all, float(size), budget=budget)
            _set_direct_io(fd, False)
        else:
            method = "POSIX_FADV_DONTNEED before each pass (this file system has no O_DIRECT)"
            cold = measure_best_rate(read_all, float(size), budget=budget, before=drop_cache)
        progress("reading the file from the page cache")
        read_all()
        warm = measure_best_rate(read_all, float(size), budget=budget)
    return StorageRates(cold=cold, warm=warm, method=method)


def _set_direct_io(fd: int, on: bool) -> bool:
    """Switch O_DIRECT on or off; return False if the file system does not support it."""
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_DIRECT if on else flags & ~os.O_DIRECT)
    except OSError:
        return False
    return True
