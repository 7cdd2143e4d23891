"""Measure a case with `--by-operator`: one replica, timed as a whole and operator by operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tessera.inference.attribution.shares import OperatorAttribution, Roofline, TimedOperator, group_operators
from tessera.inference.cases import Task
from tessera.inference.measures.figures import compute_rate_metrics, compute_readiness_metrics
from tessera.inference.measures.throughput import sample_windows
from tessera.inference.replicas.replica_pool import ReplicaPool
from tessera.launch.worker import RunContext
from tessera.machine.catalogue import load_host
from tessera.measure.environment import compute_host_fingerprint
from tessera.measure.samples import Samples, Sampling
from tessera.measure.statistics import estimate_median
from tessera.report.figures import format_percent, format_seconds
from tessera.results.metrics import make_metrics
from tessera.results.record import Case, Record

BENCHMARK_VERSION = "1"
NO_ROOFLINE_NOTE = "no roofline: calibrate this machine once with `tessera doctor --calibrate`"
INT8_NOTE = "int8: no bytes and no roofline, because only the engine knows which tensors it keeps in 8 bits"


def measure_by_operator(
    context: RunContext, case: Case, task: Task, sampling: Sampling, notes: tuple[str, ...] = ()
) -> Record:
    """Measure the seconds per batch, and the share of this time by kind of operator and by layer."""
    with ReplicaPool(task.placement, context.launch) as pool:
        network = pool.load(task.settings)
        series = sample_windows(network, sampling, batches=task.settings.device_iterations)
        if series.error is not None:
            raise series.error
        operators, timed_by = pool.run("tessera.inference.attribution.engine_nodes:time_by_operator", network.name)[0]
        (summary,) = network.summarise()
    latencies = tuple(latency for window in series.windows for latency in window.latencies)
    whole = estimate_median(latencies).value
    attribution = OperatorAttribution(operators=tuple(operators), whole=whole)
    roofline = load_roofline(network.reports[0].compute_dtype, task.placement.cores, summary.environment)
    kinds, layers = (group_operators(attribution.operators, by, roofline) for by in ("kind", "layer"))
    missing = explain_missing_roofline(attribution.operators, roofline, task.settings.precision)
    remarks = (f"operators timed by {timed_by}", format_difference(attribution))
    times = {"time": whole, "operators": attribution.operator_seconds, "between": attribution.seconds_between}
    return Record(
        case=case,
        version=BENCHMARK_VERSION,
        launches=(Samples(values=latencies, stopped_by=series.stopped_by),),
        metrics=make_metrics(times)
        | compute_rate_metrics(series, task.placement.cores)
        | compute_readiness_metrics(network.reports),
        environment=summary.environment,
        details={
            "kinds": [share.to_json() for share in kinds],
            "layers": [share.to_json() for share in layers],
            "remarks": list(remarks),
        },
        notes=tuple(dict.fromkeys([*notes, *network.reports[0].notes, *summary.notes, *missing, *remarks])),
    )


def format_difference(attribution: OperatorAttribution) -> str:
    """Format the sum of the operator times, the time of the whole batch, and the difference of the two."""
    share = format_percent(abs(attribution.seconds_between) / attribution.whole)
    operators, whole = format_seconds(attribution.operator_seconds), format_seconds(attribution.whole)
    totals = f"operators {operators} of {whole} for the whole batch"
    if attribution.seconds_between >= 0:
        return f"{totals}: {share} is between operators, in the framework and in preparing input"
    return f"{totals}: the overhead of timing each operator exceeds the time between operators by {share}"


def explain_missing_roofline(
    operators: Sequence[TimedOperator], roofline: Roofline | None, precision: str
) -> tuple[str, ...]:
    """Return a note if operators have known FLOPs but this host has no calibrated roofline."""
    if all(operator.flops is None for operator in operators):  # an ONNX file: without FLOPs there is never a roofline
        return ()
    if precision == "int8":
        return (INT8_NOTE,)
    return (NO_ROOFLINE_NOTE,) if roofline is None else ()


def load_roofline(dtype: str, cores: int, environment: Mapping[str, Any]) -> Roofline | None:
    """Return the roofline of this host for a dtype, or None if it is not calibrated."""
    host = load_host(compute_host_fingerprint(environment))
    if host is None or dtype not in host.flops or "global" not in host.links:
        return None
    return Roofline(host.get_rate(dtype, workers=cores), host.get_bandwidth("global", workers=cores))
