"""What a worker does with one case: measure it in a fresh process, or on its rank."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tessera.launch.fresh import FreshProcess, resolve
from tessera.launch.worker import Worker
from tessera.measure.clock import read_steal
from tessera.measure.environment import environment, frequency
from tessera.measure.samples import Sampling
from tessera.results.record import Case, Record


def measure(worker: Worker, run: str, preload: str, case: Case, sampling: Sampling) -> Record:
    """One launch of one case.

    A lone worker forks a fresh process for it, after importing what it needs: a case that crashes takes only its own
    process along, and every launch has memory of its own. Ranks are joined to one another and measure as they are.
    """
    if worker.size > 1 or worker.spawn == "inline":
        return measure_here(worker, run, case, sampling)
    resolve(run)
    environment()  # what is slow to find out about it is kept, and children inherit it
    if preload:
        resolve(preload)(case)
    with FreshProcess() as fresh:
        record = fresh.call("tessera.suites.worker:measure_here", worker, run, case, sampling)
    assert isinstance(record, Record)
    return record


def measure_here(worker: Worker, run: str, case: Case, sampling: Sampling) -> Record:
    """Measure in this process, and note what happened around it."""
    started, begin, stolen = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic(), read_steal()
    record: Record = resolve(run)(worker, case, sampling)
    seconds = time.monotonic() - begin
    stolen = (read_steal() - stolen) / seconds / len(os.sched_getaffinity(0))
    conditions = {"load": os.getloadavg()[0], "steal": stolen, "mhz": frequency()}
    return replace(record, started=started, seconds=seconds, conditions={**record.conditions, **conditions})


def told(worker: Worker, value: Any) -> Any:
    """Give a value back: inside a job, the first of the results is what rank 0 said."""
    return value
