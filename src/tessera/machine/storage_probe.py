"""How fast this host reads a file: cold, from the device, and warm, from the page cache."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tessera.errors import TesseraError
from tessera.machine.repetition import Best, best_rate

BLOCK = 4 << 20
IN_FLIGHT = 4
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageRates:
    """Bytes/s of reading a file cold and warm; `method` says how the page cache was avoided."""

    cold: Best
    warm: Best
    method: str


def storage_rates(
    directory: Path, *, size: int, budget: float, progress: Callable[[str], None] = lambda _: None
) -> StorageRates:
    """Read a temporary file of `size` bytes in `directory`, several blocks in flight.

    The file has no name: however this process ends, the system frees it. "Cold" means past the page cache of
    this system; what a hypervisor or a disk controller caches below it cannot be seen from here.
    """
    size = max(size // BLOCK, IN_FLIGHT) * BLOCK
    try:
        with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
            progress(f"writing a temporary file of {size >> 20} MB")
            _fill(file.fileno(), size)
            return _read_both_ways(file.fileno(), size, budget, progress)
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise TesseraError(
                f"no room for a temporary file of {size >> 20} MB in {directory}",
                do="choose another directory",
            ) from None
        raise TesseraError(f"cannot measure storage in {directory}: {error.strerror}") from None


def _fill(fd: int, size: int) -> None:
    os.posix_fallocate(fd, 0, size)  # a full disk shows now, not after seconds of writing
    block = os.urandom(BLOCK)
    for offset in range(0, size, BLOCK):
        written = 0
        while written < BLOCK:
            written += os.pwrite(fd, block[written:], offset + written)
    os.fsync(fd)


def _read_both_ways(fd: int, size: int, budget: float, progress: Callable[[str], None]) -> StorageRates:
    # Anonymous maps are page-aligned, which reads past the page cache require.
    buffers = [mmap.mmap(-1, BLOCK) for _ in range(IN_FLIGHT)]

    def drop_cache() -> None:
        os.posix_fadvise(fd, 0, size, os.POSIX_FADV_DONTNEED)

    def read_every(lane: int) -> None:
        for offset in range(lane * BLOCK, size, IN_FLIGHT * BLOCK):
            if os.preadv(fd, [buffers[lane]], offset) != BLOCK:
                raise OSError(errno.EIO, "the temporary file is shorter than written")

    with ThreadPoolExecutor(IN_FLIGHT) as pool:

        def read_all() -> None:
            list(pool.map(read_every, range(IN_FLIGHT)))

        progress("reading it cold")
        drop_cache()
        if _set_direct(fd, True):
            method = f"O_DIRECT, {IN_FLIGHT} reads of {BLOCK >> 20} MB in flight"
            cold = best_rate(read_all, float(size), budget=budget)
            _set_direct(fd, False)
        else:
            method = "POSIX_FADV_DONTNEED before each pass (this file system has no O_DIRECT)"
            cold = best_rate(read_all, float(size), budget=budget, before=drop_cache)
        progress("reading it warm")
        read_all()
        warm = best_rate(read_all, float(size), budget=budget)
    return StorageRates(cold=cold, warm=warm, method=method)


def _set_direct(fd: int, on: bool) -> bool:
    """Switch reads past the page cache on or off; False where the file system does not know them."""
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_DIRECT if on else flags & ~os.O_DIRECT)
    except OSError:
        return False
    return True
