"""Cases with a planned fate, run as a feature of their own."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from tessera.errors import Refused
from tessera.launch.worker import Worker
from tessera.measure.sampler import sample
from tessera.measure.samples import Sampling
from tessera.results.record import Case, Record


def worker_has_run(case: Case) -> bool:
    """Whether a launch was here before; the case says where it leaves its mark."""
    mark = Path(str(case.params["mark"]))
    been = mark.exists()
    mark.touch()
    return been


def run(worker: Worker, case: Case, sampling: Sampling) -> Record:
    if case.name == "crashes":
        os.kill(os.getpid(), signal.SIGSEGV)
    if case.name == "raises":
        raise ZeroDivisionError("planned")
    if case.name == "refuses":
        raise Refused("not on this machine", got="x", allowed="y")
    if case.name == "hangs":
        time.sleep(1000)
    if case.name == "kills the worker":
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(1000)
    if case.name == "fails the second time" and worker_has_run(case):
        raise ZeroDivisionError("planned")
    if case.name == "speaks and crashes":
        print("something is wrong with my hat", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    samples = sample(lambda: sum(range(100)), Sampling(warmup=1, iterations=5), sync=worker.sync)
    return Record(case=case, launches=(samples,), environment={"pid": os.getpid(), "rank": worker.rank})
