"""Measure one inference case: start its replicas, run its mode, and build the record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tessera.inference.cases import Task, get_task, make_case
from tessera.inference.measures import compare_with_peak, compute_memory_metrics, compute_readiness_metrics
from tessera.inference.modes.load import Load, ModeOutcome
from tessera.inference.modes.load_modes import measure_offline, measure_server, measure_single_stream
from tessera.inference.replicas.replica_pool import LoadedNetwork, ReplicaPool, ReplicaSummary
from tessera.inference.settings import make_sampling_notes
from tessera.launch.worker import RunContext
from tessera.measure.environment import DEVICE_FIELD, compute_fingerprint, describe_environment
from tessera.measure.samples import Sampling
from tessera.results.record import Case, Metric, Record, make_error_record

BENCHMARK_VERSION = "1"
MEASURE_BY_MODE: dict[str, Callable[[LoadedNetwork, Load, Sampling], ModeOutcome]] = {
    "offline": measure_offline,
    "single-stream": measure_single_stream,
    "server": measure_server,
}


def explain_missing_peak(environment: Mapping[str, Any]) -> str:
    """Return the note of a record without a share of the peak."""
    device = str(environment.get(DEVICE_FIELD, "")).partition(" ")[0]
    command = f"tessera doctor --calibrate{f' --device {device}' if device else ''}"
    return f"no share of the machine's peak: run `{command}` once"


def join_environments(environments: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the environment of the first replica, with the devices of all; without replicas, of this process."""
    if not environments:
        return describe_environment()
    joined = dict(environments[0])
    devices = dict.fromkeys(str(each[DEVICE_FIELD]) for each in environments if DEVICE_FIELD in each)
    if len(devices) > 1:
        joined[DEVICE_FIELD] = ", ".join(devices)
        joined["fingerprint"] = compute_fingerprint(joined)
    return joined


def measure_network(sampling: Sampling | None = None, **values: Any) -> Record:
    """Measure a network from Python. The keywords are the options of `tessera infer`, with `_` for `-`.

    Example: `measure_network(model="resnet50", engine="openvino", batch_size=8, num_replicas=2)`.
    """
    return run_case(RunContext(), make_case(values), sampling or Sampling())


def run_case(context: RunContext, case: Case, sampling: Sampling) -> Record:
    """Measure one case. This process starts the replica processes and sleeps while they compute."""
    task = get_task(case)
    notes = task.placement.check()
    notes += make_sampling_notes(task.settings, mode=task.load.mode, iterations=sampling.iterations)
    if task.by_operator:
        from tessera.inference.attribution.measure import measure_by_operator

        return measure_by_operator(context, case, task, sampling, notes)
    with ReplicaPool(task.placement, context.launch) as pool:
        network = pool.load(task.settings)
        outcome = MEASURE_BY_MODE[task.load.mode](network, task.load, sampling)
        summaries = [] if outcome.error else network.summarise()
    return _build_record(case, task, network, outcome, summaries, notes)


def _build_record(
    case: Case,
    task: Task,
    network: LoadedNetwork,
    outcome: ModeOutcome,
    summaries: Sequence[ReplicaSummary],
    task_notes: tuple[str, ...],
) -> Record:
    """Build the record of a case. `summaries` is empty if a replica died."""
    metrics = {**outcome.metrics, **compute_readiness_metrics(network.reports)}
    predicted: dict[str, Metric] = {}
    notes = [*task_notes, *network.reports[0].notes, *outcome.notes]
    if summaries:
        metrics |= compute_memory_metrics(summaries)
        notes += [note for summary in summaries for note in summary.notes]
        if flops := summaries[0].flops_per_image:
            dtype, cores = network.reports[0].compute_dtype, task.placement.used_cores
            environments = [summary.environment for summary in summaries]
            shares, predicted = compare_with_peak(outcome.rate, flops, dtype, cores, environments)
            metrics |= shares
            notes += [] if predicted else [explain_missing_peak(environments[0])]
    return Record(
        case=case,
        version=BENCHMARK_VERSION,
        status=make_error_record(case, outcome.error).status if outcome.error else "ok",
        reason=str(outcome.error or ""),
        unit=outcome.unit,
        direction=outcome.direction,
        launches=(outcome.samples,),
        metrics=metrics,
        predicted=predicted,
        environment=join_environments([summary.environment for summary in summaries]),
        conditions=summaries[0].conditions if summaries else {},
        chosen=outcome.chosen,
        details=outcome.details,
        notes=tuple(dict.fromkeys(notes)),
    )
