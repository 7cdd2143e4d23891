"""Peak extra memory while a callable runs, by two different witnesses that must not be mixed up.

`allocated` is what torch's allocator handed out: exact to the byte, per operator, blind to everything else.
`resident` is what the kernel saw the process grow by: everything, in pages, and only what was not resident before.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocated:
    """Bytes torch's allocator gave out during one call: in total, the peak held at once, and by operator."""

    total: int
    peak: int
    by_operator: Mapping[str, int] = field(default_factory=dict)


def allocated(fn: Callable[[], Any]) -> Allocated:
    """Run `fn` once under torch's profiler and count what was allocated, the result included."""
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
    return Allocated(total=total, peak=peak, by_operator=by_operator)


def resident_growth(fn: Callable[[], Any]) -> int | None:
    """How far the process's resident set rose above where it stood while `fn` ran once, in bytes.

    Freed memory that the allocator keeps is given back first: taken again it would not show. None where the kernel
    does not let a process reset its own high-water mark.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except AttributeError:  # another allocator than glibc's
        return None
    trim(0)
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        before = _status("VmRSS")
    except (OSError, KeyError):
        return None
    result = fn()
    peak = _status("VmHWM")
    del result
    return max(0, peak - before)


def _status(name: str) -> int:
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    raise KeyError(name)
