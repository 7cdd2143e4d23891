"""A fake feature for suite tests: the name of a case decides whether it succeeds, fails, hangs or crashes."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from tessera.errors import Refused
from tessera.launch.worker import RunContext
from tessera.measure.sampler import sample
from tessera.measure.samples import Sampling
from tessera.results.record import Case, Record


def mark_launch(case: Case) -> bool:
    """Create the mark file of a case, and return whether an earlier launch had already created this file."""
    mark = Path(str(case.params["mark"]))
    exists = mark.exists()
    mark.touch()
    return exists


def run(context: RunContext, case: Case, sampling: Sampling) -> Record:
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
    if case.name == "fails the second time" and mark_launch(case):
        raise ZeroDivisionError("planned")
    if case.name == "speaks and crashes":
        print("something is wrong with my hat", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    samples = sample(lambda: sum(range(100)), Sampling(warmup=1, iterations=5), sync=context.worker.sync)
    return Record(case=case, launches=(samples,), environment={"pid": os.getpid(), "rank": context.worker.rank})
