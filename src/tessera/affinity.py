"""The cores that a process may run on. Systems without affinity, such as macOS, report all cores and pin nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable

HAS_AFFINITY = hasattr(os, "sched_getaffinity")


def get_affinity(pid: int = 0) -> set[int]:
    """Return the cores that a process may run on; 0 is this process (or thread)."""
    return os.sched_getaffinity(pid) if HAS_AFFINITY else set(range(os.cpu_count() or 1))


def set_affinity(cpus: Iterable[int], pid: int = 0) -> None:
    """Pin a process to cores; no-op on a system without affinity."""
    if HAS_AFFINITY:
        os.sched_setaffinity(pid, cpus)
