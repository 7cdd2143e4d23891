"""Where times and disturbances come from: the machine's clocks, or synthetic ones in tests."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple


class Counters(NamedTuple):
    """What the kernel counts for this process: involuntary context switches and minor page faults."""

    switches: int
    faults: int


def read_counters() -> Counters:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return Counters(usage.ru_nivcsw, usage.ru_minflt)


def read_steal() -> float:
    """Seconds the hypervisor took from the cores this process may use, since boot (0 where nobody says)."""
    try:
        cores = os.sched_getaffinity(0)
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
    """Nanoseconds of wall and CPU time, kernel counters, stolen seconds; each a plain function.

    CPU time is of the whole process, all its threads: on a shared machine it often tells what wall time hides.
    """

    wall: Callable[[], int] = field(default=time.perf_counter_ns)
    cpu: Callable[[], int] = field(default=time.process_time_ns)
    counters: Callable[[], Counters] = field(default=read_counters)
    steal: Callable[[], float] = field(default=read_steal)


MACHINE_CLOCK = Clock()
