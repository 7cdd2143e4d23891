"""Tests of SIGINT, SIGTERM and SIGKILL in a run: finished launches are kept, no process is left, --resume continues."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tessera.results.store import Store

pytestmark = pytest.mark.timeout(120)
OPERATORS = ["add", "matmul", "--backend", "numpy", "--size", "small", "--pass", "forward"]
COMMAND = ["ops", *OPERATORS, "--launches", "40", "--run-name", "cut"]


def start_command(folder: Path) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """Start `tessera` in a new process; return it and its child processes after two launches have finished."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tessera", *COMMAND],
        cwd=folder,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for _ in range(2):
        assert "ok" in process.stderr.readline()
    return process, psutil.Process(process.pid).children(recursive=True)


def wait_until_ended(processes: list[psutil.Process]) -> bool:
    """Wait up to 10 s for the processes to end; return whether all of them ended."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if not [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_run_keeps_its_launches_and_can_be_resumed(tmp_path, number):
    process, children = start_command(tmp_path)
    assert children
    os.kill(process.pid, number)
    _, message = process.communicate(timeout=30)
    assert wait_until_ended(children)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert "Traceback" not in message
    if number == signal.SIGINT:
        assert "resume with --resume --run-name cut" in message
    with Store(tmp_path / ".tessera" / "results.sqlite") as store:
        kept = {record.case.name: len(record.launches) for record in store.read_records(store.get_run("cut"))}
    assert set(kept) == {"add", "matmul"}
    more = [word if word != "40" else str(max(kept.values()) + 1) for word in COMMAND]
    done = subprocess.run(
        [sys.executable, "-m", "tessera", *more, "--resume"], cwd=tmp_path, capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0, done.stderr
    with Store(tmp_path / ".tessera" / "results.sqlite") as store:
        run = store.get_run("cut")
        assert run.finished
        assert {len(record.launches) for record in store.read_records(run)} == {max(kept.values()) + 1}
