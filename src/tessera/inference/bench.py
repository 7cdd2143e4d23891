"""One inference case: starts its replicas, puts them to work, and makes a record of what came of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tessera.inference.cases import case_of, task_of
from tessera.inference.meanings import sampling_notes
from tessera.inference.measures.figures import Work, memory_metrics, readiness_metrics
from tessera.inference.modes.offline import offline, single_stream
from tessera.inference.modes.outcome import Outcome
from tessera.inference.modes.server import server
from tessera.inference.replicas.crew import OnReplicas, Replicas
from tessera.inference.replicas.loaded import Aftermath
from tessera.inference.task import Task
from tessera.launch.worker import Worker
from tessera.measure.environment import environment
from tessera.measure.samples import Sampling
from tessera.measure.sync import ALONE
from tessera.results.record import Case, Metric, Record, record_of_error

VERSION = "1"
MODES: dict[str, Callable[[OnReplicas, Task, Sampling], Outcome]] = {
    "offline": offline,
    "single-stream": single_stream,
    "server": server,
}
# Cases are conducted from the process that runs them: this is what it is as a worker.
HERE = Worker(rank=0, size=1, spawn="inline", cpus=(), threads=1, sync=ALONE)
UNCALIBRATED = "no share of the machine's peak: calibrate it once with `tessera doctor --calibrate`"


def measure(sampling: Sampling | None = None, **values: Any) -> Record:
    """Measure a network from Python, with the options of `tessera infer` by their names.

    `measure(model="resnet50", engine="openvino", batch_size=8, num_replicas=2)`
    """
    return run_case(HERE, case_of(values), sampling or Sampling())


def run_case(worker: Worker, case: Case, sampling: Sampling) -> Record:
    """Measure one case from this process, which starts the replicas itself and sleeps while they work."""
    task = task_of(case)
    told = task.placement.check() + sampling_notes(task.settings, mode=task.load.mode, iterations=sampling.iterations)
    if task.by_operator:
        from tessera.inference.attribution.measure import attributed

        return attributed(case, task, sampling, told)
    with Replicas(task.placement) as replicas:
        on = replicas.load(task.settings)
        outcome = MODES[task.load.mode](on, task, sampling)
        ends = [] if outcome.error else on.aftermath()
    return _record(case, task, on, outcome, ends, told)


def _record(
    case: Case, task: Task, on: OnReplicas, outcome: Outcome, ends: Sequence[Aftermath], beforehand: tuple[str, ...]
) -> Record:
    """What is known of a case. Of one that a replica's death ended there is no more than its windows."""
    metrics = {**outcome.metrics, **readiness_metrics(on.loaded)}
    predicted: dict[str, Metric] = {}
    told = [*beforehand, *on.loaded[0].notes, *outcome.notes]
    if ends:
        metrics |= memory_metrics(ends)
        told += [note for end in ends for note in end.notes]
        if flops := ends[0].flops_per_image:
            work = Work(flops_per_image=flops, dtype=on.loaded[0].compute_dtype)
            shares, predicted = work.against_peak(outcome.rate, task.placement.cores, ends[0].environment)
            metrics |= shares
            told += [] if predicted else [UNCALIBRATED]
    return Record(
        case=case,
        version=VERSION,
        status=record_of_error(case, outcome.error).status if outcome.error else "ok",
        reason=str(outcome.error or ""),
        unit=outcome.unit,
        direction=outcome.direction,
        launches=(outcome.samples,),
        metrics=metrics,
        predicted=predicted,
        environment=ends[0].environment if ends else environment(),
        conditions=dict(outcome.conditions),
        notes=tuple(dict.fromkeys(told)),
    )
