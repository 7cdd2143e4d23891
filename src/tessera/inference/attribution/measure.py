"""Measure a case with `--by-operator`: one replica, timed as a whole and operator by operator.

Timed operators are grouped by kind or layer, with their share of the time and their roofline fraction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tessera.inference.cases import Task
from tessera.inference.measures import compute_rate_metrics, compute_readiness_metrics, sample_windows
from tessera.inference.replicas.replica_pool import ReplicaPool
from tessera.launch.worker import RunContext
from tessera.machine.catalogue import load_host
from tessera.measure.environment import compute_host_fingerprint
from tessera.measure.samples import Samples, Sampling
from tessera.measure.statistics import estimate_median
from tessera.report.figures import format_percent, format_seconds
from tessera.results.metrics import make_metrics
from tessera.results.record import Case, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOperator:
    """One operator of a pass over a batch: its layer, kind, seconds, FLOPs and bytes moved.

    FLOPs and bytes are None if they are unknown, as for a kernel that the engine added itself.
    """

    layer: str
    kind: str
    seconds: float
    flops: float | None = None
    moved: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOperatorShare:
    """A group of operators: number of calls, seconds, share of the time of all operators, roofline fraction.

    `roofline` is the minimum time on the calibrated machine over the measured time; 1 is as fast as the machine allows.
    It is None if this host is not calibrated or the work is unknown.
    """

    name: str
    calls: int
    seconds: float
    share: float
    flops: float | None
    moved: float | None
    roofline: float | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorAttribution:
    """All operators of a pass, with the seconds of the whole pass measured without timing operators.

    The sum of the operators is less than the whole by the time between them (Python, dispatch of the framework), or
    more by the overhead of timing each operator.
    """

    operators: tuple[TimedOperator, ...]
    whole: float

    @property
    def operator_seconds(self) -> float:
        """The sum of the seconds of all operators."""
        return sum(operator.seconds for operator in self.operators)

    @property
    def seconds_between(self) -> float:
        """Seconds of the whole pass minus the sum of the operators.

        Negative if the overhead of timing operators exceeds the time between operators.
        """
        return self.whole - self.operator_seconds


def group_operators(
    operators: Sequence[TimedOperator], by: str, roofline: Roofline | None = None
) -> list[EngineOperatorShare]:
    """Group operators by `kind` or by `layer`, the most expensive group first.

    >>> shares = group_operators([
    ...     TimedOperator(layer="a", kind="conv", seconds=3.0), TimedOperator(layer="b", kind="relu", seconds=1.0),
    ...     TimedOperator(layer="b", kind="conv", seconds=2.0)], "kind")
    >>> [(share.name, share.calls, share.seconds, round(share.share, 2)) for share in shares]
    [('conv', 2, 5.0, 0.83), ('relu', 1, 1.0, 0.17)]
    """
    groups: dict[str, list[TimedOperator]] = {}
    for operator in operators:
        groups.setdefault(str(getattr(operator, by)), []).append(operator)
    whole = sum(operator.seconds for operator in operators)
    shares = [_build_share(name, group, whole, roofline) for name, group in groups.items()]
    return sorted(shares, key=lambda share: share.seconds, reverse=True)


def _build_share(
    name: str, group: Sequence[TimedOperator], whole: float, roofline: Roofline | None
) -> EngineOperatorShare:
    seconds = sum(operator.seconds for operator in group)
    flops = [operator.flops for operator in group if operator.flops is not None]
    moved = [operator.moved for operator in group if operator.moved is not None]
    return EngineOperatorShare(
        name=name,
        calls=len(group),
        seconds=seconds,
        share=seconds / whole if whole else 0.0,
        flops=sum(flops) if flops else None,
        moved=sum(moved) if moved else None,
        roofline=_compute_roofline_share(group, roofline) if roofline else None,
    )


def _compute_roofline_share(group: Sequence[TimedOperator], roofline: Roofline) -> float | None:
    """Return the roofline time over the measured time of the operators with known FLOPs and bytes."""
    best = seconds = 0.0
    for operator in group:
        if operator.flops is not None and operator.moved is not None:
            best += roofline.compute_seconds(operator.flops, operator.moved)
            seconds += operator.seconds
    return best / seconds if best and seconds else None


@dataclass(frozen=True, slots=True)
class Roofline:
    """The peak FLOP/s and bytes/s of the cores in use."""

    flops: float
    bandwidth: float

    def compute_seconds(self, flops: float, moved: float) -> float:
        """Return the roofline time in seconds of `flops` FLOPs and `moved` bytes."""
        return max(flops / self.flops, moved / self.bandwidth)


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
    roofline = load_roofline(network.reports[0].compute_dtype, task.placement.used_cores, summary.environment)
    kinds, layers = (group_operators(attribution.operators, by, roofline) for by in ("kind", "layer"))
    missing = explain_missing_roofline(attribution.operators, roofline, task.settings.precision)
    remarks = (f"operators timed by {timed_by}", format_difference(attribution))
    times = {"time": whole, "operators": attribution.operator_seconds, "between": attribution.seconds_between}
    return Record(
        case=case,
        version=BENCHMARK_VERSION,
        launches=(Samples(values=latencies, stopped_by=series.stopped_by),),
        metrics=make_metrics(times)
        | compute_rate_metrics(series, task.placement.used_cores)
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
