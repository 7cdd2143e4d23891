"""What a record of an operator says beside its times: memory, rates, and what the calibrated machine would need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tessera.machine.cost import compute_time
from tessera.machine.hosts import load_host
from tessera.measure.environment import host_fingerprint
from tessera.measure.memory import allocated, resident_growth
from tessera.operators import backends
from tessera.results.record import Metric

Metrics = dict[str, Metric]


def memory(call: Callable[[], Any], backend: str) -> Metrics:
    """Peak bytes of one call: what torch's allocator gave out where it is torch, and what the kernel saw."""
    found = {}
    if backends.entry(backend).package == "torch":
        taken = allocated(call)
        found["allocated"] = Metric(taken.total, "B", "lower")
        found["peak_allocated"] = Metric(taken.peak, "B", "lower")
    resident = resident_growth(call)
    if resident is not None:
        found["peak_resident"] = Metric(resident, "B", "lower")
    return found


def rates(
    flops: float, moved: float, seconds: float, *, dtype: str, environment: Mapping[str, Any]
) -> tuple[Metrics, Metrics]:
    """Work per second and the share of the roofline, and beside them what the calibrated machine predicts.

    A pass that computes or moves nothing has no such rate.
    """
    found: Metrics = {}
    predicted: Metrics = {}
    if flops:
        found["gflops"] = Metric(flops / seconds / 1e9, "GFLOP/s", "higher")
    if moved:
        found["bandwidth"] = Metric(moved / seconds / 1e9, "GB/s", "higher")
    if flops or moved:
        unit, work = ("FLOP", flops) if flops > moved else ("B", moved)
        found["work"] = Metric(work, unit)
        host = load_host(host_fingerprint(environment))
        if host is not None and dtype in host.flops:
            expected = compute_time(host, flops, moved, dtype, threads=int(environment["threads"]))
            predicted["time"] = Metric(expected, "s", "lower")
            found["roofline"] = Metric(expected / seconds, "", "higher")
    return found, predicted
