"""One operator case, measured: what a worker runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tessera.launch.worker import Worker
from tessera.machine.cost import compute_time
from tessera.machine.hosts import load_host
from tessera.measure.environment import environment, host_fingerprint
from tessera.measure.memory import allocated, resident_growth
from tessera.measure.sampler import sample
from tessera.measure.samples import Samples, Sampling
from tessera.operators.catalogue import Operator, find
from tessera.operators.passes import DTYPES, make_inputs, make_pass, pass_flops
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
    work = _work(operator, size, which, dtype)
    metrics = time_metrics(samples) | _rates(work, samples)
    metrics["allocated"] = Metric(memory.total, "B", "lower")
    metrics["peak_allocated"] = Metric(memory.peak, "B", "lower")
    if resident is not None:
        metrics["peak_resident"] = Metric(resident, "B", "lower")
    predicted = {}
    host = load_host(host_fingerprint(seen))
    if host is not None and dtype in host.flops:
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


def _work(operator: Operator, size: str, which: str, dtype: str) -> tuple[float, float]:
    """FLOPs and bytes of one call; a backward pass reads and writes about as many bytes as the forward pass."""
    passes = 2 if which == "both" else 1
    return pass_flops(operator, which, size), float(passes * operator.elements(size) * DTYPES[dtype].itemsize)


def _rates(work: tuple[float, float], samples: Samples) -> dict[str, Metric]:
    flops, moved = work
    seconds = time_metrics(samples)["time"].value
    return {
        "gflops": Metric(flops / seconds / 1e9, "GFLOP/s", "higher"),
        "bandwidth": Metric(moved / seconds / 1e9, "GB/s", "higher"),
    }
