"""Tests of signals in a run: finished launches are kept, no process is left, --resume continues."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tessera.errors import TesseraError
from tessera.results.store import Store

pytestmark = pytest.mark.timeout(120)
OPERATORS = ["add", "matmul", "--backend", "numpy", "--size", "small", "--pass", "forward"]
COMMAND = ["ops", *OPERATORS, "--launches", "40", "--run-name", "cut"]


def _restore_signals() -> None:
    """Restore signals that the tests themselves inherit as ignored, for example under `nohup`."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def start_command(folder: Path) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """Start `tessera` in a new process; return it and its child processes after two launches have finished."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tessera", *COMMAND],
        cwd=folder,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=_restore_signals,
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_an_interrupted_run_keeps_its_launches_and_can_be_resumed(tmp_path, number):
    process, children = start_command(tmp_path)
    assert children
    os.kill(process.pid, number)
    _, message = process.communicate(timeout=30)
    assert wait_until_ended(children)
    assert process.returncode == (-number if number == signal.SIGKILL else 128 + number)
    assert "Traceback" not in message
    if number != signal.SIGKILL:
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


def test_a_run_that_is_interrupted_before_its_first_record_is_deleted(tmp_path):
    words = ["ops", "matmul", "--size", "large", "--iterations", "100000", "--launches", "1", "--run-name", "empty"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tessera", *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    path = tmp_path / ".tessera" / "results.sqlite"
    while process.poll() is None and not (path.exists() and _list_runs(path)):
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGTERM)
    _, message = process.communicate(timeout=30)
    assert process.returncode == 143
    assert "ended by SIGTERM" in message
    assert _list_runs(path) == []


def _list_runs(path: Path) -> list[str]:
    try:
        with Store(path, create=False) as store:
            return [run.name for run in store.list_runs()]
    except TesseraError:  # the store is being created
        return []


def test_two_commands_cannot_resume_one_run_at_the_same_time(tmp_path):
    process, children = start_command(tmp_path)
    try:
        second = subprocess.run(
            [sys.executable, "-m", "tessera", *COMMAND, "--resume"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert second.returncode == 2
        assert f"process {process.pid} on " in second.stderr
        assert "is writing the run: got 'cut'" in second.stderr
    finally:
        os.kill(process.pid, signal.SIGINT)
        process.communicate(timeout=30)
    assert wait_until_ended(children)
