"""Ending processes with all that they started."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

GRACE = 3.0


def end_tree(roots: Iterable[psutil.Process]) -> None:
    """End the roots, their descendants and whoever shares the roots' process groups: SIGTERM, then SIGKILL.

    Each root leads a process group of its own, so that children whose parent has died are found as well.
    """
    import psutil

    roots = list(roots)
    found = _members(roots)
    for process in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    deadline = time.monotonic() + GRACE
    while found and time.monotonic() < deadline:
        psutil.wait_procs(found, timeout=deadline - time.monotonic())
        found = _members(roots)
    for process in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(found, timeout=GRACE)


def _members(roots: list[psutil.Process]) -> list[psutil.Process]:
    import psutil

    found: set[psutil.Process] = set()
    for root in roots:
        with contextlib.suppress(psutil.NoSuchProcess):
            found.update([root] if root.is_running() else [], root.children(recursive=True))
    groups = {root.pid for root in roots}
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getpgid(process.pid) in groups:
                found.add(process)
    found.discard(psutil.Process())
    return [p for p in found if _lives(p)]


def _lives(process: psutil.Process) -> bool:
    import psutil

    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
