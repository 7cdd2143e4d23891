"""The memory that a process can still allocate: limits of the machine, of control groups and of the process."""

from __future__ import annotations

import os
import resource
from pathlib import Path

# For each version of control groups: files with limit and usage, and the field with immediately reclaimable memory.
CGROUP_MEMORY_FILES = {
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    "": ("memory.max", "memory.current", "inactive_file"),
}


def get_available_bytes(root: Path = Path("/")) -> int:
    """Return the bytes that this process can still allocate without swapping and within its limits."""
    return max(0, min([_read_machine_limit(root), *_read_cgroup_limits(root), *_read_process_limit(root)]))


def _read_machine_limit(root: Path) -> int:
    for line in (root / "proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def _read_cgroup_limits(root: Path) -> list[int]:
    """Return the free bytes within the limit of each control group of this process and each parent group."""
    free = []
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in CGROUP_MEMORY_FILES:
            continue
        top = root / "sys/fs/cgroup" / controllers
        group = top / path.lstrip("/")
        if not group.is_dir():
            group = top  # inside a container, the container's control group is mounted as the root
        limit, used, reclaimable = CGROUP_MEMORY_FILES[controllers]
        for directory in (group, *group.parents):
            if not directory.is_relative_to(top):
                break
            try:
                maximum = int((directory / limit).read_text())  # `max` means no limit
                stat = dict(line.split() for line in (directory / "memory.stat").read_text().splitlines())
                free.append(maximum - int((directory / used).read_text()) + int(stat[reclaimable]))
            except (OSError, ValueError, KeyError):
                continue
    return free


def _read_process_limit(root: Path) -> list[int]:
    """Return the bytes left within the address space limit (`ulimit -v`) as a list; empty without a limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return []
    pages = int((root / "proc/self/statm").read_text().split()[0])
    return [limit - pages * os.sysconf("SC_PAGE_SIZE")]
