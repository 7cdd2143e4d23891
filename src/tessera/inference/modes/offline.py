"""The load modes offline (throughput) and single-stream (latency of sequential batches)."""

from __future__ import annotations

from dataclasses import replace

from tessera.inference.measures.figures import compute_rate_metrics
from tessera.inference.measures.throughput import WindowSeries, sample_windows
from tessera.inference.modes.load import Load, ModeOutcome
from tessera.inference.replicas.replica_pool import LoadedNetwork
from tessera.measure.samples import Sampling
from tessera.measure.statistics import estimate_median
from tessera.results.metrics import make_metrics


def measure_offline(network: LoadedNetwork, load: Load, sampling: Sampling) -> ModeOutcome:
    """Measure the throughput in images/s, in windows that all replicas start together."""
    series = _sample_network(network, sampling)
    return ModeOutcome(
        samples=series.samples(),
        unit="images/s",
        direction="higher",
        rate=series.rate,
        metrics=compute_rate_metrics(series, network.pool.placement.cores),
        notes=_format_failure(series),
        error=series.error,
    )


def measure_single_stream(network: LoadedNetwork, load: Load, sampling: Sampling) -> ModeOutcome:
    """Measure the latency of every batch in seconds; a batch starts when the batch before it has ended."""
    series = _sample_network(network, sampling)
    latencies = tuple(latency for window in series.windows for latency in window.latencies)
    metrics = compute_rate_metrics(series, network.pool.placement.cores)
    median = estimate_median(latencies)
    return ModeOutcome(
        samples=replace(
            series.samples(),
            values=latencies,
            cpu=(),
            warmups=tuple(latency for window in series.warmups for latency in window.latencies),
            interval=median.relative if len(latencies) > 5 else None,
            ranks=(),
            joined_by="",
        ),
        unit="s",
        direction="lower",
        rate=series.rate,
        metrics=make_metrics({"time": median.value}) | metrics,
        notes=_format_failure(series),
        error=series.error,
    )


def _sample_network(network: LoadedNetwork, sampling: Sampling) -> WindowSeries:
    return sample_windows(network, sampling, batches=network.settings.device_iterations)


def _format_failure(series: WindowSeries) -> tuple[str, ...]:
    """Return notes about the error that ended the run early; empty if there was none."""
    if series.error is None:
        return ()
    count = len(series.windows)
    return (f"ended early: only the {count} window{'s' if count > 1 else ''} of all replicas before the failure count",)
