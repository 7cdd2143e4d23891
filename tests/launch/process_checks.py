"""Checks that no process is left after a launch."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import psutil


def find_running(pids: Iterable[int]) -> list[int]:
    """Return those of the given processes that still run; a zombie counts as ended."""
    running = []
    for pid in pids:
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                running.append(pid)
        except psutil.NoSuchProcess:
            continue
    return running


def end_within(pids: Iterable[int], seconds: float) -> bool:
    """Wait a limited time for processes to end, and return whether all have ended."""
    pids, deadline = list(pids), time.monotonic() + seconds
    while left := find_running(pids):
        if time.monotonic() > deadline:
            return not left
        time.sleep(0.05)
    return True


PARENT = """
import sys
from tessera.launch import LaunchConfig, Workers
with Workers(LaunchConfig(spawn=sys.argv[1], workers=2)) as workers:
    workers.run("tests.launch.worker_functions:hold_interpreter", sys.argv[2])
"""


def start_hanging_parent(spawn: str, note: Path) -> tuple[subprocess.Popen[bytes], list[int]]:
    """Start a parent process with two workers that never reply; return the parent and all processes of the workers."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, spawn, str(note)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stderr=subprocess.DEVNULL,
    )
    files = [Path(f"{note}.{rank}") for rank in (0, 1)]
    deadline = time.monotonic() + 40
    while not all(f.exists() and f.read_text().endswith("\n") for f in files):
        assert time.monotonic() < deadline
        assert parent.poll() is None
        time.sleep(0.05)
    return parent, [int(pid) for f in files for pid in f.read_text().split()]
