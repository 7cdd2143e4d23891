"""What a launch may leave behind: nothing."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import psutil


def directories() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("tessera-*"))


def alive(pids: Iterable[int]) -> list[int]:
    """Those of the processes that still run; a zombie has ended."""
    found = []
    for pid in pids:
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
        except psutil.NoSuchProcess:
            continue
    return found


def gone_within(pids: Iterable[int], seconds: float) -> bool:
    pids, deadline = list(pids), time.monotonic() + seconds
    while left := alive(pids):
        if time.monotonic() > deadline:
            return not left
        time.sleep(0.05)
    return True
