"""How much memory a process can still take: what the machine has, and what its container and its own limit allow."""

from __future__ import annotations

import os
import resource
from pathlib import Path

KINDS = {  # of control groups: the limit, what is used, and how the part of it that can be given back at once is called
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    "": ("memory.max", "memory.current", "inactive_file"),
}


def available(root: Path = Path("/")) -> int:
    """Bytes that this process can still take without swapping, as the kernel and its limits have it."""
    return max(0, min([_of_the_machine(root), *_of_control_groups(root), *_of_the_process(root)]))


def _of_the_machine(root: Path) -> int:
    for line in (root / "proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def _of_control_groups(root: Path) -> list[int]:
    """What every group that this process is in, and every group around it, leaves."""
    found = []
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in KINDS:
            continue
        top = root / "sys/fs/cgroup" / controllers
        group = top / path.lstrip("/")
        if not group.is_dir():
            group = top  # a container sees its own group as the root, whatever its path says
        limit, used, given_back = KINDS[controllers]
        for at in (group, *group.parents):
            if not at.is_relative_to(top):
                break
            try:
                most = int((at / limit).read_text())  # `max` is none
                stat = dict(line.split() for line in (at / "memory.stat").read_text().splitlines())
                found.append(most - int((at / used).read_text()) + int(stat[given_back]))
            except (OSError, ValueError, KeyError):
                continue
    return found


def _of_the_process(root: Path) -> list[int]:
    """What its own limit of addresses leaves (`ulimit -v`)."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return []
    pages = int((root / "proc/self/statm").read_text().split()[0])
    return [limit - pages * os.sysconf("SC_PAGE_SIZE")]
