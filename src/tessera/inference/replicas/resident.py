"""The largest resident set of this process, as the kernel keeps it."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress

RESET_PEAK = "5"  # what the kernel takes for it: see clear_refs in proc(5)


def reset_peak() -> None:
    """Let the peak start again from what is resident now, after giving back what is free, where that can be."""
    gc.collect()
    with suppress(AttributeError, OSError):  # another allocator than glibc's; a kernel that does not let us
        ctypes.CDLL(None).malloc_trim(0)
        with open("/proc/self/clear_refs", "w") as file:
            file.write(RESET_PEAK)


def peak() -> int:
    """Bytes that were resident at most, since the start or the last reset."""
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0
