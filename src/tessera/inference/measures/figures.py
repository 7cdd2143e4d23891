"""The metrics of an inference record: throughput, latencies, memory, CPU utilisation, fraction of peak FLOP/s."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tessera.inference.measures.throughput import WindowSeries
from tessera.inference.replicas.replica_pool import LoadReport, ReplicaSummary
from tessera.machine.catalogue import load_host
from tessera.measure.environment import compute_host_fingerprint
from tessera.measure.statistics import Estimate
from tessera.results.metrics import Metric, make_metrics

LATENCY_STATISTICS = ("min", "mean", "p50", "p90", "p99", "max")


def compute_latency_metrics(seconds: Sequence[float]) -> dict[str, Metric]:
    """Return minimum, mean, percentiles and maximum of latencies in seconds, one per batch or query."""
    values = np.asarray(seconds)
    p50, p90, p99 = np.quantile(values, [0.5, 0.9, 0.99])
    statistics = (values.min(), values.mean(), p50, p90, p99, values.max())
    return make_metrics(
        {f"latency_{name}": float(value) for name, value in zip(LATENCY_STATISTICS, statistics, strict=True)}
    )


def compute_rate_metrics(series: WindowSeries, cores: int) -> dict[str, Metric]:
    """Return throughput, latencies, scaling efficiency, CPU utilisation and energy of a series of windows."""
    latencies = [latency for window in series.windows for latency in window.latencies]
    busy = float(np.median([window.utilisation for window in series.windows])) / cores
    metrics = make_metrics({"throughput": series.rate, "cpu_utilisation": busy}) | compute_latency_metrics(latencies)
    if series.efficiency is not None:
        metrics |= build_interval_metrics("efficiency", series.efficiency)
    if series.joules:
        metrics |= make_metrics({"energy_per_image": series.joules / series.images})
    return metrics


def build_interval_metrics(name: str, interval: Estimate) -> dict[str, Metric]:
    """Return a metric and the bounds of its confidence interval, if the bounds are finite."""
    values = {name: interval.value}
    if math.isfinite(interval.low) and math.isfinite(interval.high):
        values |= {f"{name}_low": interval.low, f"{name}_high": interval.high}
    return make_metrics(values)


def compute_readiness_metrics(reports: Sequence[LoadReport]) -> dict[str, Metric]:
    """Return the time to the first answer and its steps, for the slowest replica, and the agreement with torch."""
    slowest = max(reports, key=lambda report: report.first_batch)
    values = {"first_batch": slowest.first_batch}
    values |= {f"first_batch_{step}": took for step, took in slowest.first_batch_steps.items()}
    for agreement in (report.agreement for report in reports):
        if agreement is not None:
            values |= {"top1_agreement": float(agreement["top1"]), "output_error": float(agreement["error"])}
    return make_metrics(values)


def compute_memory_metrics(summaries: Sequence[ReplicaSummary]) -> dict[str, Metric]:
    """Return the sum of the peak memory of all replicas in bytes."""
    return make_metrics({"peak_memory": sum(summary.peak_rss for summary in summaries)})


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageWork:
    """The FLOPs of one image, and the dtype of the engine's arithmetic."""

    flops_per_image: float
    dtype: str

    def compare_with_peak(
        self, rate: float, cores: int, environment: Mapping[str, Any]
    ) -> tuple[dict[str, Metric], dict[str, Metric]]:
        """Return metrics and predictions for a measured rate in images/s.

        The metrics are GFLOP/s and the fraction of the peak, which is the calibrated FLOP/s of a matrix product on
        `cores` cores. The prediction is the rate at that peak. If this host is not calibrated for the dtype, only
        GFLOP/s are returned.
        """
        metrics = make_metrics({"gflops": self.flops_per_image * rate / 1e9})
        host = load_host(compute_host_fingerprint(environment))
        if host is None or self.dtype not in host.flops:
            return metrics, {}
        most = host.get_rate(self.dtype, workers=cores) / self.flops_per_image
        return metrics | make_metrics({"peak_fraction": rate / most}), make_metrics({"throughput": most})
