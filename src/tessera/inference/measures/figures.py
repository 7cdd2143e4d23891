"""The figures of an inference record: rate, latencies, memory, cores in use, and how near the peak that is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tessera.inference.measures.throughput import Taken
from tessera.inference.replicas.loaded import Aftermath, Loaded
from tessera.machine.hosts import load_host
from tessera.measure.environment import host_fingerprint
from tessera.measure.statistics import Interval
from tessera.results.record import Metric

LATENCIES = ("min", "mean", "p50", "p90", "p99", "max")


def latency_metrics(seconds: Sequence[float]) -> dict[str, Metric]:
    """The latency of a batch, or of a question, by its usual names."""
    values = np.asarray(seconds)
    p50, p90, p99 = np.quantile(values, [0.5, 0.9, 0.99])
    found = (values.min(), values.mean(), p50, p90, p99, values.max())
    return {f"latency_{name}": Metric(float(value), "s", "lower") for name, value in zip(LATENCIES, found, strict=True)}


def rate_metrics(taken: Taken, cores: int) -> dict[str, Metric]:
    """What windows tell: images per second, latencies, how well replicas scale, how busy their cores were, energy."""
    latencies = [one for window in taken.windows for one in window.latencies]
    busy = float(np.median([window.utilisation for window in taken.windows])) / cores
    found = {"throughput": Metric(taken.rate, "images/s", "higher")} | latency_metrics(latencies)
    found["cpu_utilisation"] = Metric(busy, "", "higher")
    if taken.efficiency is not None:
        found |= with_bounds("efficiency", taken.efficiency)
    if taken.joules:
        found["energy_per_image"] = Metric(taken.joules / taken.images, "J", "lower")
    return found


def with_bounds(name: str, interval: Interval) -> dict[str, Metric]:
    """A share and, where they are known, the bounds of its interval."""
    found = {name: Metric(interval.value, "", "higher")}
    if math.isfinite(interval.low) and math.isfinite(interval.high):
        found |= {f"{name}_low": Metric(interval.low), f"{name}_high": Metric(interval.high)}
    return found


def readiness_metrics(loaded: Sequence[Loaded]) -> dict[str, Metric]:
    """Time to the first answer, of the slowest replica, with its steps; and how far the engine agrees with torch."""
    slowest = max(loaded, key=lambda one: one.first_batch)
    found = {"first_batch": Metric(slowest.first_batch, "s", "lower")}
    found |= {f"first_batch_{step}": Metric(took, "s", "lower") for step, took in slowest.steps.items()}
    for one in loaded:
        if one.agreement is not None:
            found["top1_agreement"] = Metric(float(one.agreement["top1"]), "", "higher")
            found["output_error"] = Metric(float(one.agreement["error"]), "", "lower")
    return found


def memory_metrics(ends: Sequence[Aftermath]) -> dict[str, Metric]:
    """Bytes that were resident at most, all replicas together."""
    return {"peak_memory": Metric(sum(end.peak for end in ends), "B", "lower")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The arithmetic of one image, and the format that the engine computes in."""

    flops_per_image: float
    dtype: str

    def against_peak(
        self, rate: float, cores: int, seen: Mapping[str, Any]
    ) -> tuple[dict[str, Metric], dict[str, Metric]]:
        """What a rate is in FLOP/s and as a share of the calibrated matrix product on as many cores; and the rate that
        the whole of it would be: metrics and predictions.

        Without a calibration of this host, or for a format that it does not hold, there is no share.
        """
        metrics = {"gflops": Metric(self.flops_per_image * rate / 1e9, "GFLOP/s", "higher")}
        host = load_host(host_fingerprint(seen))
        if host is None or self.dtype not in host.flops:
            return metrics, {}
        most = host.rate(self.dtype, workers=cores) / self.flops_per_image
        metrics["peak_fraction"] = Metric(rate / most, "", "higher")
        return metrics, {"throughput": Metric(most, "images/s", "higher")}
