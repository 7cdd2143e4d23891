"""Measure one operator case on a worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tessera.launch.fresh import FreshProcess
from tessera.launch.worker import RunContext, Worker
from tessera.measure.environment import describe_environment
from tessera.measure.memory import flush_caches
from tessera.measure.sampler import sample
from tessera.measure.samples import Sampling
from tessera.operators import backends, sources
from tessera.operators.check import load_reference_names
from tessera.operators.device_bench import build_synchronous, run_on_device
from tessera.operators.metrics import compute_rates, measure_memory
from tessera.operators.preparation import PreparedPass, build_request, prepare_operator, prepare_pass
from tessera.results.metrics import make_time_metrics
from tessera.results.record import Case, Record


def preload(case: Case) -> None:
    """Import the packages of the case's backend, source and reference before the measuring process is forked."""
    load_reference_names()
    backends.load_backend(str(case.params["backend"])).preload()
    if case.params.get("fusion") == "compile":
        backends.load_backend("compile").preload()
    source = sources.find_source(case)
    if source is not None:
        sources.preload(source)


def build_callable(case: Case, check: bool = True) -> Callable[[], Any]:
    """Build the callable that runs the pass of a case; `check` compares its output with the reference first."""
    if "fusion" in case.params:
        return _build_fused(case)
    if "device" in case.params:
        return build_synchronous(case, lambda case: _build_call(case, check))
    return _build_call(case, check)


def _build_call(case: Case, check: bool) -> Callable[[], Any]:
    if check:
        return prepare_operator(case)[1].call
    name = str(case.params["backend"])
    return backends.load_backend(name).prepare(build_request(case), backends.get_expression(name, case.name)).call


def _build_fused(case: Case) -> Callable[[], Any]:
    from tessera.operators.fusion import build_programs

    return build_programs(build_request(case), str(case.params["fusion"]))["fused"]


def run_fresh(worker: Worker, case: Case, sampling: Sampling) -> Record:
    """Measure one operator in a new forked process, so that a crash or retained memory affects no other case."""
    preload(case)
    with FreshProcess() as fresh:
        record = fresh.call("tessera.operators.bench:run_case", RunContext(worker=worker), case, sampling)
    assert isinstance(record, Record)
    return record


def run_case(context: RunContext, case: Case, sampling: Sampling) -> Record:
    """Measure time, memory and rates of one operator on this worker, and add the time predicted by the roofline."""
    if "fusion" in case.params:
        from tessera.operators.fusion import run_fused

        return run_fused(context.worker, case, sampling)
    if "device" in case.params:
        return run_on_device(context.worker, case, sampling)
    prepared = prepare_pass(case)
    # before sampling, because it empties the allocator's cache
    memory = measure_memory(prepared.call, str(case.params["backend"]))
    samples = sample(prepared.call, sampling, sync=context.worker.sync, before=_build_before_hook(prepared, case))
    environment_seen, times = describe_environment(), make_time_metrics(samples)
    rates, predicted = compute_rates(
        prepared.flops, prepared.moved, times["time"].value, dtype=prepared.dtype, environment=environment_seen
    )
    return Record(
        case=case,
        version=prepared.version,
        launches=(samples,),
        metrics=times | memory | rates,
        predicted=predicted,
        environment=environment_seen,
        details={**prepared.details, **({"output": prepared.output} if prepared.output else {})},
        notes=prepared.notes,
    )


def _build_before_hook(prepared: PreparedPass, case: Case) -> Callable[[], Any] | None:
    """Return the untimed hook before each sample: restore overwritten inputs, then flush the caches if `cache=cold`."""
    steps = [step for step in (prepared.before, flush_caches if case.params.get("cache") == "cold" else None) if step]
    return (lambda: [step() for step in steps]) if steps else None
