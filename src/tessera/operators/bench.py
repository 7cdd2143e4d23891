"""One operator case, measured: what a worker runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tessera.launch.fresh import FreshProcess
from tessera.launch.worker import Worker
from tessera.measure.cache import flush
from tessera.measure.environment import environment
from tessera.measure.sampler import sample
from tessera.measure.samples import Sampling
from tessera.operators import backends, sources
from tessera.operators.check import reference_names
from tessera.operators.figures import memory, rates
from tessera.operators.ready import Ready, make_ready
from tessera.results.figures import time_metrics
from tessera.results.record import Case, Record


def preload(case: Case) -> None:
    """Import what the case's backend, its source and the references need, in the process that will be forked."""
    reference_names()
    backends.backend(str(case.params["backend"])).preload()
    if case.params.get("fusion") == "compile":
        backends.backend("compile").preload()
    source = sources.source_of(case)
    if source is not None:
        sources.preload(source)


def run_fresh(worker: Worker, case: Case, sampling: Sampling) -> Record:
    """Measure one operator in a process forked for it: a crash takes nothing else along, and its memory is its own."""
    preload(case)
    with FreshProcess() as fresh:
        record = fresh.call("tessera.operators.bench:run_case", worker, case, sampling)
    assert isinstance(record, Record)
    return record


def run_case(worker: Worker, case: Case, sampling: Sampling) -> Record:
    """Measure one operator on this worker: time, memory, rates, and what the calibrated machine predicts."""
    if "fusion" in case.params:
        from tessera.operators.fusion import run_fused

        return run_fused(worker, case, sampling)
    ready = make_ready(case)
    taken = memory(ready.call, str(case.params["backend"]))  # first: it empties what the allocator keeps
    samples = sample(ready.call, sampling, sync=worker.sync, before=_before(ready, case))
    seen, times = environment(), time_metrics(samples)
    found, predicted = rates(ready.flops, ready.moved, times["time"].value, dtype=ready.dtype, environment=seen)
    return Record(
        case=case,
        version=ready.version,
        launches=(samples,),
        metrics=times | taken | found,
        predicted=predicted,
        environment=seen,
        notes=ready.notes,
    )


def _before(ready: Ready, case: Case) -> Callable[[], Any] | None:
    """What comes before each sample: putting back what calls have changed, then emptying the caches."""
    steps = [step for step in (ready.before, flush if case.params.get("cache") == "cold" else None) if step]
    return (lambda: [step() for step in steps]) if steps else None
