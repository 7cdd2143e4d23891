"""A case that asks where the time goes: one replica, timed whole and operator by operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tessera.inference.attribution.shares import Attribution, Least, Operator, counted
from tessera.inference.measures.figures import rate_metrics, readiness_metrics
from tessera.inference.measures.throughput import sample_windows
from tessera.inference.replicas.crew import Replicas
from tessera.inference.task import Task
from tessera.machine.hosts import load_host
from tessera.measure.environment import host_fingerprint
from tessera.measure.samples import Samples, Sampling
from tessera.measure.statistics import median_interval
from tessera.report.figures import format_percent, format_seconds
from tessera.results.record import Case, Metric, Record

VERSION = "1"
UNCALIBRATED = "no roofline: calibrate this machine once with `tessera doctor --calibrate`"
EIGHT_BITS = "int8: bytes and roofline are left out, since only the engine knows which tensors it keeps in eight bits"


def attributed(case: Case, task: Task, sampling: Sampling, told: tuple[str, ...] = ()) -> Record:
    """The seconds of a batch, whole, and what each kind of operator and each layer takes of them."""
    with Replicas(task.placement) as replicas:
        on = replicas.load(task.settings)
        taken = sample_windows(on, sampling, batches=task.settings.device_iterations)
        if taken.error is not None:
            raise taken.error
        operators, witness = replicas.run("tessera.inference.attribution.inside:by_operator", on.name)[0]
        (end,) = on.aftermath()
    latencies = tuple(one for window in taken.windows for one in window.latencies)
    whole = median_interval(latencies).value
    found = Attribution(operators=tuple(operators), whole=whole, witness=witness)
    least = least_time(on.loaded[0].compute_dtype, task.placement.cores, end.environment)
    kinds, layers = (counted(found.operators, by, least) for by in ("kind", "layer"))
    missing = without_roofline(found.operators, least, task.settings.precision)
    said = (f"operators timed by {witness}", difference(found))
    times = {"time": whole, "operators": found.sum, "between": found.between}
    return Record(
        case=case,
        version=VERSION,
        launches=(Samples(values=latencies, stopped_by=taken.stopped_by),),
        metrics={name: Metric(value, "s", "lower") for name, value in times.items()}
        | rate_metrics(taken, task.placement.cores)
        | readiness_metrics(on.loaded),
        environment=end.environment,
        conditions={"kinds": [one.to_json() for one in kinds], "layers": [one.to_json() for one in layers]},
        notes=tuple(dict.fromkeys([*told, *on.loaded[0].notes, *end.notes, *missing, *said])),
    )


def difference(found: Attribution) -> str:
    """The sum of the operators beside the whole, and what lies between."""
    share = format_percent(abs(found.between) / found.whole)
    said = f"operators {format_seconds(found.sum)} of {format_seconds(found.whole)} for the whole batch"
    if found.between >= 0:
        return f"{said}: {share} lies between them, in the framework and in preparing input"
    return f"{said}: timing each one costs {share} more than lies between them"


def without_roofline(operators: Sequence[Operator], least: Least | None, precision: str) -> tuple[str, ...]:
    """Why operators whose work is known have no distance to the roofline; nothing to tell where they have one."""
    if all(operator.flops is None for operator in operators):  # of an ONNX file, which nothing would change
        return ()
    if precision == "int8":
        return (EIGHT_BITS,)
    return (UNCALIBRATED,) if least is None else ()


def least_time(dtype: str, cores: int, seen: Mapping[str, Any]) -> Least | None:
    """The limits of this host for a number format; None where they were not calibrated."""
    host = load_host(host_fingerprint(seen))
    if host is None or dtype not in host.flops or "global" not in host.links:
        return None
    return Least(host.rate(dtype, workers=cores), host.bandwidth("global", workers=cores))
