"""Functions that run inside a worker process to measure one case."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tessera.affinity import get_affinity
from tessera.launch.fresh import FreshProcess, load_object
from tessera.launch.worker import RunContext, Worker
from tessera.measure.clock import read_steal_seconds
from tessera.measure.environment import describe_environment, read_cpu_mhz
from tessera.measure.samples import Sampling
from tessera.results.record import Case, Record
from tessera.suites.features import Feature


def measure_case(worker: Worker, feature: Feature, case: Case, sampling: Sampling, context: RunContext) -> Record:
    """Measure one launch of one case; `context` holds everything about the run except the worker.

    A single worker imports the modules of the case and forks a process that measures it: a crash ends only the forked
    process, and every launch has fresh memory. Ranks do not fork, because they are connected to each other.
    """
    context = replace(context, worker=worker)
    if worker.size > 1 or worker.spawn == "inline":
        return measure_here(context, feature.run, case, sampling)
    load_object(feature.run)
    describe_environment()  # forked processes inherit the cached parts of the description
    if feature.preload:
        load_object(feature.preload)(case)
    with FreshProcess() as process:
        record = process.call("tessera.suites.worker:measure_here", context, feature.run, case, sampling)
    assert isinstance(record, Record)
    return record


def measure_here(context: RunContext, run: str, case: Case, sampling: Sampling) -> Record:
    """Measure a case in this process; add start, duration, load, steal time and clock frequency to the record."""
    started, begin, stolen = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic(), read_steal_seconds()
    record: Record = load_object(run)(context, case, sampling)
    seconds = time.monotonic() - begin
    stolen = (read_steal_seconds() - stolen) / seconds / len(get_affinity())
    conditions = {"load": os.getloadavg()[0], "steal": stolen, "mhz": read_cpu_mhz()}
    return replace(record, started=started, seconds=seconds, conditions={**record.conditions, **conditions})


def echo(worker: Worker, value: Any) -> Any:
    """Return `value`. In a job, the first result of `Workers.run` is then the value that rank 0 passed."""
    return value
