"""Memory of this process, the extra memory of a callable by two methods with different meaning, and CPU caches.

`count_allocations` counts the bytes that torch allocates: exact to the byte and per operator, but torch only.
`measure_resident_growth` returns the growth of the resident set: memory of all libraries, but in whole pages, and
without pages that were resident before.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocations:
    """Bytes allocated by torch during one call: total, peak, and by operator."""

    total: int
    peak: int
    by_operator: Mapping[str, int] = field(default_factory=dict)


def count_allocations(fn: Callable[[], Any]) -> Allocations:
    """Run `fn` once under torch's profiler and count the bytes that it allocates, including its result."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        result = fn()
    del result
    held = peak = total = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
            total += max(event.nbytes(), 0)
    by_operator = {
        event.key: int(event.self_cpu_memory_usage)
        for event in profiler.key_averages()
        if event.key != "[memory]" and event.self_cpu_memory_usage > 0
    }
    return Allocations(total=total, peak=peak, by_operator=by_operator)


def measure_resident_growth(fn: Callable[[], Any]) -> int | None:
    """Run `fn` once and return its peak resident set minus the resident set before, in bytes.

    Free memory of the allocator is first returned to the kernel, because its reuse would not be counted. The result is
    None if the kernel does not let a process reset its peak.
    """
    if not trim_allocator() or not reset_peak_memory():
        return None
    before = read_process_memory().resident
    result = fn()
    peak = read_process_memory().peak
    del result
    return max(0, peak - before)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessMemory:
    """Resident set size of this process in bytes: now (VmRSS), and its peak since the last reset (VmHWM)."""

    resident: int
    peak: int


def read_process_memory() -> ProcessMemory:
    """Return the memory of this process as the kernel reports it."""
    with open("/proc/self/status") as file:
        fields = dict(line.split(":", 1) for line in file)
    return ProcessMemory(resident=_parse_kilobytes(fields["VmRSS"]), peak=_parse_kilobytes(fields["VmHWM"]))


def _parse_kilobytes(text: str) -> int:
    return int(text.split()[0]) * 1024


def reset_peak_memory() -> bool:
    """Set the peak memory of this process to its current memory; return False if the kernel does not permit it."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        return False
    return True


def trim_allocator() -> bool:
    """Return free memory of the allocator to the kernel; return False if the allocator is not glibc's."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except AttributeError:
        return False
    trim(0)
    return True


MIN_FLUSH_BUFFER_BYTES = 64 << 20


def flush_caches() -> None:
    """Flush all CPU caches by reading and writing a buffer that is larger than the largest cache."""
    np.add(_get_flush_buffer(), 1, out=_get_flush_buffer())


@cache
def _get_flush_buffer() -> NDArray[np.uint8]:
    return np.zeros(max(MIN_FLUSH_BUFFER_BYTES, 2 * _read_largest_cache()), dtype=np.uint8)


def _read_largest_cache() -> int:
    """Return the size in bytes of the largest cache of the first core; 0 if the kernel does not report it."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    sizes = [path.read_text().strip() for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return max((int(size[:-1]) * units[size[-1]] for size in sizes), default=0)
