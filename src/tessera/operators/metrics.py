"""Metrics of an operator besides its time: memory, rates, and the time predicted from the machine's calibration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tessera.machine.catalogue import load_host
from tessera.machine.cost import compute_time
from tessera.measure.environment import compute_host_fingerprint
from tessera.measure.memory import count_allocations, measure_resident_growth
from tessera.operators import backends
from tessera.results.metrics import Metric, make_metrics

Metrics = dict[str, Metric]


def measure_memory(call: Callable[[], Any], backend: str) -> Metrics:
    """Measure the memory of one call: bytes allocated by torch (torch backends only), and growth of the RSS."""
    metrics: Metrics = {}
    if backends.get_backend_entry(backend).package == "torch":
        allocation = count_allocations(call)
        metrics |= make_metrics({"allocated": allocation.total, "peak_allocated": allocation.peak})
    resident = measure_resident_growth(call)
    if resident is not None:
        metrics |= make_metrics({"peak_resident": resident})
    return metrics


def compute_rates(
    flops: float, moved_bytes: float, seconds: float, *, dtype: str, environment: Mapping[str, Any]
) -> tuple[Metrics, Metrics]:
    """Compute FLOP and byte rates, the share of the roofline, and the time predicted from the machine's calibration.

    Returns (metrics, predicted metrics). A rate is omitted if its FLOP or byte count is zero. The calibration is
    that of the accelerator if the environment names one, else that of the host.
    """
    metrics: Metrics = {}
    predicted: Metrics = {}
    if flops:
        metrics |= make_metrics({"gflops": flops / seconds / 1e9})
    if moved_bytes:
        metrics |= make_metrics({"bandwidth": moved_bytes / seconds / 1e9})
    if flops or moved_bytes:
        unit, work = ("FLOP", flops) if flops > moved_bytes else ("B", moved_bytes)
        metrics["work"] = Metric(work, unit)
        host = load_host(compute_host_fingerprint(environment))
        if host is not None and dtype in host.flops:
            expected = compute_time(host, flops, moved_bytes, dtype, threads=int(environment["threads"]))
            predicted = make_metrics({"time": expected})
            metrics |= make_metrics({"roofline": expected / seconds})
    return metrics, predicted
