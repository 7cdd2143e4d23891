"""One operator case, measured: what a worker runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# autograd and the profiler import this at their first call: better here, once, than in every launch
import torch._dynamo  # noqa: F401

from tessera.launch.worker import Worker
from tessera.machine.cost import compute_time
from tessera.machine.hosts import load_host
from tessera.measure.environment import environment, host_fingerprint
from tessera.measure.memory import allocated, resident_growth
from tessera.measure.sampler import sample
from tessera.measure.samples import Sampling
from tessera.operators.catalogue import Operator, find
from tessera.operators.passes import DTYPES, make_inputs, make_pass
from tessera.results.figures import time_metrics
from tessera.results.record import Case, Metric, Record


def run_case(worker: Worker, case: Case, sampling: Sampling) -> Record:
    """Measure one operator on this worker: time, memory, rates, and what the calibrated machine predicts."""
    operator, size, which, dtype = _parts(case)
    fn = callable_of(case)
    samples = sample(fn, sampling, sync=worker.sync)
    memory = allocated(fn)
    resident = resident_growth(fn)
    seen = environment()
    work = operator.work(size, which, DTYPES[dtype].itemsize)
    metrics = time_metrics(samples)
    metrics |= _rates(work, metrics["time"].value)
    metrics["allocated"] = Metric(memory.total, "B", "lower")
    metrics["peak_allocated"] = Metric(memory.peak, "B", "lower")
    if resident is not None:
        metrics["peak_resident"] = Metric(resident, "B", "lower")
    predicted = {}
    host = load_host(host_fingerprint(seen))
    if host is not None and dtype in host.flops and any(work):
        seconds = compute_time(host, *work, dtype, threads=int(seen["threads"]))
        predicted["time"] = Metric(seconds, "s", "lower")
        metrics["roofline"] = Metric(seconds / metrics["time"].value, "", "higher")
    return Record(
        case=case,
        version=operator.version,
        launches=(samples,),
        metrics=metrics,
        predicted=predicted,
        environment=seen,
    )


def callable_of(case: Case) -> Callable[[], Any]:
    """The case's pass on its inputs, ready to be called."""
    operator, size, which, dtype = _parts(case)
    inputs = make_inputs(operator, size, dtype, seed=int(case.params.get("seed", 0)), grad=which != "forward")
    return make_pass(operator, which, inputs)


def _parts(case: Case) -> tuple[Operator, str, str, str]:
    size, which, dtype = (str(case.params[name]) for name in ("size", "pass", "dtype"))
    return find([case.name])[0], size, which, dtype


def _rates(work: tuple[float, float], seconds: float) -> dict[str, Metric]:
    """GFLOP/s and GB/s of a call; a pass that computes or moves nothing has no such rate."""
    flops, moved = work
    found = {}
    if flops:
        found["gflops"] = Metric(flops / seconds / 1e9, "GFLOP/s", "higher")
    if moved:
        found["bandwidth"] = Metric(moved / seconds / 1e9, "GB/s", "higher")
    return found
