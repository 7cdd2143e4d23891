"""Clocks and counters of disturbances: read from the machine, or synthetic values in tests."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from tessera.affinity import get_affinity


class KernelCounters(NamedTuple):
    """Kernel counters of this process: involuntary context switches and minor page faults."""

    switches: int
    faults: int


def read_kernel_counters() -> KernelCounters:
    """Return the kernel counters of this process since its start."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return KernelCounters(usage.ru_nivcsw, usage.ru_minflt)


def read_steal_seconds() -> float:
    """Return the steal time in seconds since boot, summed over the cores of this process; 0 if unknown."""
    try:
        cores = get_affinity()
        with open("/proc/stat", "rb") as file:
            total = 0
            for line in file:
                if not line.startswith(b"cpu"):
                    break
                words = line.split()
                if words[0] != b"cpu" and int(words[0][3:]) in cores and len(words) > 8:
                    total += int(words[8])
    except (OSError, AttributeError, ValueError):
        return 0.0
    return total / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Clock:
    """Functions that return wall time and CPU time in nanoseconds, kernel counters, and steal time in seconds.

    CPU time is summed over all threads of the process.
    """

    wall: Callable[[], int] = field(default=time.perf_counter_ns)
    cpu: Callable[[], int] = field(default=time.process_time_ns)
    counters: Callable[[], KernelCounters] = field(default=read_kernel_counters)
    steal: Callable[[], float] = field(default=read_steal_seconds)


MACHINE_CLOCK = Clock()
