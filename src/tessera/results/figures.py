"""The figures every timed record carries, derived from its samples in one place."""

from __future__ import annotations

from tessera.measure.samples import Samples
from tessera.measure.statistics import summarize
from tessera.results.record import FLOOR, Metric


def time_metrics(samples: Samples) -> dict[str, Metric]:
    """Median, quantiles, CPU time and page faults of one launch."""
    wall = summarize(samples.values)
    found = {
        "time": Metric(wall.median, "s", "lower"),
        FLOOR: Metric(wall.p5, "s", "lower"),
        "p25": Metric(wall.p25, "s", "lower"),
        "p90": Metric(wall.p90, "s", "lower"),
        "p99": Metric(wall.p99, "s", "lower"),
        "mad": Metric(wall.mad, "s", "lower"),
        "page_faults": Metric(samples.faults_per_call, "1/call", "lower"),
        "disturbed": Metric(samples.disturbed, "", "lower"),
    }
    if samples.cpu:
        found["cpu_time"] = Metric(summarize(samples.cpu).median, "s", "lower")
    return found
