"""Batches one after the other: the most images per second, or, as a single stream, the latency of each."""

from __future__ import annotations

from dataclasses import replace

from tessera.inference.measures.figures import rate_metrics
from tessera.inference.measures.throughput import Taken, sample_windows
from tessera.inference.modes.outcome import Outcome
from tessera.inference.replicas.crew import OnReplicas
from tessera.inference.task import Task
from tessera.measure.samples import Sampling
from tessera.measure.statistics import median_interval
from tessera.results.record import Metric


def offline(on: OnReplicas, task: Task, sampling: Sampling) -> Outcome:
    """Images per second, window by window."""
    taken = _windows(on, task, sampling)
    return Outcome(
        samples=taken.samples(),
        unit="images/s",
        direction="higher",
        rate=taken.rate,
        metrics=rate_metrics(taken, task.placement.cores),
        notes=_notes(taken),
        error=taken.error,
    )


def single_stream(on: OnReplicas, task: Task, sampling: Sampling) -> Outcome:
    """The seconds of every batch: the next begins when the last is answered."""
    taken = _windows(on, task, sampling)
    latencies = tuple(one for window in taken.windows for one in window.latencies)
    metrics = rate_metrics(taken, task.placement.cores)
    known = median_interval(latencies)
    return Outcome(
        samples=replace(
            taken.samples(),
            values=latencies,
            cpu=(),
            warmups=tuple(one for window in taken.warmups for one in window.latencies),
            interval=known.relative if len(latencies) > 5 else None,
            ranks=(),
            joined_by="",
        ),
        unit="s",
        direction="lower",
        rate=taken.rate,
        metrics={"time": Metric(known.value, "s", "lower"), **metrics},
        notes=_notes(taken),
        error=taken.error,
    )


def _windows(on: OnReplicas, task: Task, sampling: Sampling) -> Taken:
    return sample_windows(on, sampling, batches=task.settings.device_iterations)


def _notes(taken: Taken) -> tuple[str, ...]:
    """What became of a run that did not end as it should."""
    if taken.error is None:
        return ()
    kept = len(taken.windows)
    return (f"broken off: {kept} window{'s' if kept > 1 else ''} of all replicas before the failure kept",)
