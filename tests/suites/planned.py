"""Cases with a planned fate, run as a feature of their own."""

from __future__ import annotations

import os
import signal
import time

from tessera.errors import Refused
from tessera.launch.worker import Worker
from tessera.measure.sampler import sample
from tessera.measure.samples import Sampling
from tessera.results.record import Case, Record


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
    samples = sample(lambda: sum(range(100)), Sampling(warmup=1, iterations=5), sync=worker.sync)
    return Record(case=case, launches=(samples,), environment={"pid": os.getpid(), "rank": worker.rank})
