"""Sample the throughput of replicas in windows, and compute the metrics of an inference record.

A window starts at a barrier. Its rate is the sum of the rates of all replicas over the time in which all of them
compute (see `windows`). The rate of a run is the median over its windows, with a confidence interval from order
statistics. Windows of all replicas are interleaved with windows of the first replica alone, so that machine noise
affects both equally. The ratio of the two rates gives the scaling efficiency. The energy of the processor packages is
read from the kernel's RAPL counters if this process has permission."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tessera.errors import BenchmarkFailed
from tessera.inference.replicas.replica_pool import LoadReport, ReplicaSummary
from tessera.inference.replicas.windows import ThroughputWindow
from tessera.machine.catalogue import load_host
from tessera.measure.environment import compute_host_fingerprint
from tessera.measure.interleave import estimate_paired_ratio
from tessera.measure.samples import Samples, Sampling
from tessera.measure.statistics import Estimate, estimate_median
from tessera.measure.stopping import StoppingRule, WarmUp, sample_until, warm_up
from tessera.results.metrics import Metric, make_metrics

POWERCAP_FOLDER = Path("/sys/class/powercap")
PACKAGE_DOMAIN_PREFIX = "package"  # prefix of the name of a processor package's domain, as in package-0


@dataclass(frozen=True, slots=True)
class EnergyCounters:
    """A reading of the energy counters of all packages in microjoules, with the wrap-around value of each counter."""

    energy: tuple[int, ...]
    wraps_at: tuple[int, ...]

    def compute_joules(self, later: EnergyCounters) -> float:
        """Return the joules between this reading and `later`. A counter that decreased has wrapped around once.

        >>> EnergyCounters((900,), (1000,)).compute_joules(EnergyCounters((100,), (1000,)))
        0.0002
        """
        spent = 0
        for before, after, limit in zip(self.energy, later.energy, self.wraps_at, strict=True):
            spent += after - before if after >= before else after + limit - before
        return spent / 1e6


def read_energy_counters(root: Path = POWERCAP_FOLDER) -> EnergyCounters | None:
    """Read the counters of all packages; return None if there are no counters or this process may not read them.

    Sub-domains of a package (names with two colons) and the platform domain (`psys`) are skipped: their energy is
    already part of, or includes, the package counters, and would be counted twice.
    """
    domains = sorted(path for path in root.glob("*-rapl:*") if path.name.count(":") == 1)
    try:
        packages = [path for path in domains if (path / "name").read_text().startswith(PACKAGE_DOMAIN_PREFIX)]
        readings = [(_read_int(path / "energy_uj"), _read_int(path / "max_energy_range_uj")) for path in packages]
    except (OSError, ValueError):
        return None
    if not readings:
        return None
    return EnergyCounters(tuple(energy for energy, _ in readings), tuple(limit for _, limit in readings))


def _read_int(path: Path) -> int:
    return int(path.read_text())


WARMUP_WINDOWS = 2  # default number of warm-up windows, which are not counted
MIN_WINDOWS = 3  # minimum number of windows, even if they exceed the budget
MIN_WINDOWS_FOR_INTERVAL = 6  # fewer windows give no interval at 95 % confidence
WINDOWS_IN_BUDGET = 20  # number of windows that fill the budget
MAX_PAIRS = 8  # maximum number of windows of the first replica alone, each next to a window of all replicas
MAX_EMPTY_WINDOWS = 5  # maximum number of consecutive windows in which the replicas did not overlap
RETRY_FACTOR = 4  # a window without overlap is repeated with this many times the duration


class WindowSource(Protocol):
    """Interface of replicas that are ready to compute windows."""

    @property
    def size(self) -> int:
        """The number of replicas."""

    def run_window(self, *, batches: int, seconds: float, alone: bool = False) -> ThroughputWindow:
        """Run a window of at least `batches` batches and `seconds` seconds; with `alone`, on the first replica only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSeries:
    """The windows of a run. Each pair is a window of all replicas and the next window of the first replica alone.

    `error` is the error that ended the run early, for example the death of a replica; all stored windows are complete.
    """

    windows: tuple[ThroughputWindow, ...]
    warmups: tuple[ThroughputWindow, ...] = ()
    pairs: tuple[tuple[ThroughputWindow, ThroughputWindow], ...] = ()
    joules: float | None = None
    stopped_by: str = "count"
    error: BenchmarkFailed | None = None

    @property
    def rate(self) -> float:
        """Images per second: the median over the windows."""
        return estimate_median([window.rate for window in self.windows]).value

    @property
    def efficiency(self) -> Estimate | None:
        """Scaling efficiency: rate of all n replicas over n times the rate of one replica alone; None if n is 1."""
        if not self.pairs:
            return None
        size = len(self.pairs[0][0].replicas)
        together = tuple(every.rate for every, _ in self.pairs)
        ratio = estimate_paired_ratio(together, tuple(alone.rate for _, alone in self.pairs))
        return Estimate(ratio.value / size, ratio.low / size, ratio.high / size)

    @property
    def device_joules(self) -> float | None:
        """Energy of all accelerators in all windows; None if a driver does not report it."""
        spent = [window.device_joules for window in self.windows]
        return None if None in spent else sum(joules for joules in spent if joules is not None)

    @property
    def images(self) -> float:
        """Number of images in all windows, including batches that ran while other replicas were idle."""
        return sum(window.batch * len(stretch.starts) for window in self.windows for stretch in window.replicas)

    def samples(self) -> Samples:
        """Return the rates of the windows as samples: `values` are sums over replicas, `ranks` the rates by replica."""
        rates = tuple(window.rate for window in self.windows)
        rank_rates = tuple(zip(*(window.rates for window in self.windows), strict=True))
        interval = estimate_median(rates).relative if len(rates) >= MIN_WINDOWS_FOR_INTERVAL else None
        return Samples(
            values=rates,
            cpu=tuple(sum(stretch.cpu_ns for stretch in window.replicas) / 1e9 for window in self.windows),
            warmups=tuple(window.rate for window in self.warmups),
            stopped_by=self.stopped_by,
            interval=interval,
            ranks=rank_rates if len(rank_rates) > 1 else (),
            joined_by="sum over ranks" if len(rank_rates) > 1 else "",
        )


def sample_windows(
    source: WindowSource,
    sampling: Sampling,
    *,
    batches: int = 1,
    clock: Callable[[], float] = time.monotonic,
    counters: Callable[[], EnergyCounters | None] = read_energy_counters,
) -> WindowSeries:
    """Run windows until the confidence interval of the median rate meets the target or the budget is spent.

    With a fixed number of iterations each window is one iteration of `batches` batches on every replica. Otherwise a
    window takes a twentieth of the budget, or one batch if a batch takes longer.
    """
    seconds = sampling.budget / WINDOWS_IN_BUDGET if sampling.iterations is None else 0.0
    at_least = 1 if sampling.iterations is None else batches
    warmups: list[ThroughputWindow] = []
    windows: list[ThroughputWindow] = []
    pairs: list[tuple[ThroughputWindow, ThroughputWindow]] = []
    joules: float | None = 0.0

    def warm_up_window() -> int:
        warmups.append(_run_overlapping_window(source, at_least, seconds))
        return round(clock() * 1e9)

    def take_window() -> int:
        nonlocal joules
        before = counters()
        windows.append(_run_overlapping_window(source, at_least, seconds))
        after = counters()
        joules = None if joules is None or before is None or after is None else joules + before.compute_joules(after)
        if source.size > 1 and len(pairs) < MAX_PAIRS:
            pairs.append((windows[-1], _run_overlapping_window(source, at_least, seconds, alone=True)))
        return round(clock() * 1e9)

    def count_precise() -> int:
        rate = estimate_median([window.rate for window in windows], sampling.confidence)
        return len(windows) if rate.relative <= sampling.target else 0

    start = round(clock() * 1e9)
    warm_up(WarmUp(count=WARMUP_WINDOWS if sampling.warmup is None else sampling.warmup), warm_up_window, start)
    rule = StoppingRule(
        budget_ns=sampling.budget * 1e9,
        count=sampling.iterations,
        min_samples=MIN_WINDOWS_FOR_INTERVAL,
        min_samples_over_budget=MIN_WINDOWS,
    )
    error: BenchmarkFailed | None = None
    try:
        reason = sample_until(rule, take_window, round(clock() * 1e9), precise=count_precise).reason
    except BenchmarkFailed as failure:
        if not windows:
            raise
        error, reason = failure, "failure"
    return WindowSeries(
        windows=tuple(windows),
        warmups=tuple(warmups),
        pairs=tuple(pairs),
        joules=joules,
        stopped_by=reason,
        error=error,
    )


def _run_overlapping_window(
    source: WindowSource, batches: int, seconds: float, *, alone: bool = False
) -> ThroughputWindow:
    """Run a window in which the computations of all replicas overlap in time.

    A window without overlap is repeated with four times the duration: on a busy machine a replica may start so late
    that short windows of the other replicas are already over.
    """
    for attempt in range(MAX_EMPTY_WINDOWS):
        window = source.run_window(batches=batches * RETRY_FACTOR**attempt, seconds=seconds, alone=alone)
        if window.seconds > 0:
            return window
    raise BenchmarkFailed(
        f"in {MAX_EMPTY_WINDOWS} windows in a row the replicas never computed at the same time",
        do="make iterations longer with --device-iterations, or use fewer replicas",
    )


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
    if series.device_joules:
        metrics |= make_metrics({"device_energy_per_image": series.device_joules / series.images})
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
    """Return the sum of the peak memory of all replicas in bytes, on the host and on accelerators."""
    values = {"peak_memory": sum(summary.peak_rss for summary in summaries)}
    on_devices = [summary.peak_device for summary in summaries if summary.peak_device is not None]
    return make_metrics(values | ({"peak_device_memory": sum(on_devices)} if on_devices else {}))


def compare_with_peak(
    rate: float, flops_per_image: float, dtype: str, cores: int, environments: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, Metric], dict[str, Metric]]:
    """Return metrics and predictions for a measured rate in images/s; `environments` has one entry per replica.

    The metrics are GFLOP/s and the fraction of the peak, which is the calibrated FLOP/s of a matrix product on `cores`
    cores, or on all accelerators of the replicas, in the dtype of the arithmetic. The prediction is the rate at that
    peak. If this host or an accelerator is not calibrated for the dtype, only GFLOP/s are returned.
    """
    metrics = make_metrics({"gflops": flops_per_image * rate / 1e9})
    machines = [load_host(print) for print in {compute_host_fingerprint(each): None for each in environments}]
    known = [machine for machine in machines if machine is not None and dtype in machine.flops]
    if len(known) < len(machines):
        return metrics, {}
    most = sum(machine.get_rate(dtype, workers=cores) for machine in known) / flops_per_image
    return metrics | make_metrics({"peak_fraction": rate / most}), make_metrics({"throughput": most})
