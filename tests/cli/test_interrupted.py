"""Ctrl-C and kill -9 in the middle of a real run: nothing finished is lost, nothing is left running."""

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


def start(folder: Path) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """The command once it has finished two launches, with all the processes it has started."""
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


def gone(processes: list[psutil.Process]) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if not [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_cut_off_keeps_what_it_had_and_goes_on(tmp_path, number):
    process, children = start(tmp_path)
    assert children
    os.kill(process.pid, number)
    _, said = process.communicate(timeout=30)
    assert gone(children)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert "Traceback" not in said
    if number == signal.SIGINT:
        assert "go on with --resume --run-name cut" in said
    with Store(tmp_path / ".tessera" / "results.sqlite") as store:
        kept = {record.case.name: len(record.launches) for record in store.records(store.run("cut"))}
    assert set(kept) == {"add", "matmul"}
    more = [word if word != "40" else str(max(kept.values()) + 1) for word in COMMAND]
    done = subprocess.run(
        [sys.executable, "-m", "tessera", *more, "--resume"], cwd=tmp_path, capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0, done.stderr
    with Store(tmp_path / ".tessera" / "results.sqlite") as store:
        run = store.run("cut")
        assert run.finished
        assert {len(record.launches) for record in store.records(run)} == {max(kept.values()) + 1}
