"""The load modes: offline (throughput), single-stream (latency of sequential batches), and server (random arrivals).

In mode server 99 % of the images must be answered within a latency bound. The highest rate that meets the bound is
found by bisection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version
from importlib.util import find_spec

import numpy as np

from tessera.errors import BenchmarkFailed, MissingExtra, TesseraError
from tessera.inference.measures import WindowSeries, compute_latency_metrics, compute_rate_metrics, sample_windows
from tessera.inference.modes.load import Load, ModeOutcome
from tessera.inference.replicas.replica_pool import LoadedNetwork
from tessera.measure.samples import Samples, Sampling
from tessera.measure.statistics import estimate_median
from tessera.report.figures import format_rate, format_seconds
from tessera.results.metrics import make_metrics


def measure_offline(network: LoadedNetwork, load: Load, sampling: Sampling) -> ModeOutcome:
    """Measure the throughput in images/s, in windows that all replicas start together."""
    return _measure_windows(network, sampling)[1]


def measure_single_stream(network: LoadedNetwork, load: Load, sampling: Sampling) -> ModeOutcome:
    """Measure the latency of every batch in seconds; a batch starts when the batch before it has ended."""
    series, outcome = _measure_windows(network, sampling)
    latencies = tuple(latency for window in series.windows for latency in window.latencies)
    median = estimate_median(latencies)
    samples = replace(
        outcome.samples,
        values=latencies,
        cpu=(),
        warmups=tuple(latency for window in series.warmups for latency in window.latencies),
        interval=median.relative if len(latencies) > 5 else None,
        ranks=(),
        joined_by="",
    )
    metrics = {**make_metrics({"time": median.value}), **outcome.metrics}
    return replace(outcome, samples=samples, unit="s", direction="lower", metrics=metrics)


def _measure_windows(network: LoadedNetwork, sampling: Sampling) -> tuple[WindowSeries, ModeOutcome]:
    series = sample_windows(network, sampling, batches=network.settings.device_iterations)
    outcome = ModeOutcome(
        samples=series.samples(),
        unit="images/s",
        direction="higher",
        rate=series.rate,
        metrics=compute_rate_metrics(series, network.pool.placement.used_cores),
        notes=_format_failure(series.error, len(series.windows), "window", " of all replicas"),
        error=series.error,
    )
    return series, outcome


def _format_failure(error: BenchmarkFailed | None, count: int, what: str, which: str = "") -> tuple[str, ...]:
    """Return notes about the error that ended a run early after `count` windows or trials; empty without an error."""
    note = f"ended early: only the {count} {what}{'s' * (count > 1)}{which} before the failure count"
    return (note,) if error else ()


LATENCY_QUANTILE = 0.99  # fraction of the queries that must be answered within the latency bound
RATE_RESOLUTION = 1.03  # the search ends when the lowest failing rate is this close to the highest passing rate
MIN_CAPACITY_SHARE = 1 / 32  # lowest rate to try, as a fraction of the capacity
MAX_TRIALS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class RateTrial:
    """A trial at one arrival rate: the latency of every query in seconds, and the answered queries per second."""

    rate: float
    latencies: tuple[float, ...]
    achieved: float
    bound: float

    @property
    def latency(self) -> float:
        """The 99th percentile of the query latencies in seconds."""
        return float(np.quantile(self.latencies, LATENCY_QUANTILE))

    @property
    def meets_bound(self) -> bool:
        """Whether the 99th percentile of the latencies is within the latency bound."""
        return self.latency <= self.bound

    @property
    def exceeds_bound_always(self) -> bool:
        """Whether the minimum latency exceeds the latency bound, so that no rate can meet it."""
        return min(self.latencies) > self.bound


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSearch:
    """The trials of a search in order. `error` is the error that ended it early, for example the death of a replica."""

    trials: tuple[RateTrial, ...]
    error: BenchmarkFailed | None = None

    @property
    def best(self) -> RateTrial | None:
        """The trial with the highest rate that meets the latency bound, or None."""
        held = [trial for trial in self.trials if trial.meets_bound]
        return max(held, key=lambda trial: trial.rate) if held else None


def find_highest_rate(trial: Callable[[float], RateTrial], capacity: float) -> RateSearch:
    """Find the highest rate that meets the latency bound, up to `capacity` (images/s without a latency bound).

    At full capacity the queue of random arrivals grows without limit, so the search starts at half the capacity. A
    trial that raises an error ends the search; earlier trials are kept.
    """
    trials: list[RateTrial] = []
    low, high, rate = 0.0, capacity, capacity / 2
    while len(trials) < MAX_TRIALS and rate >= MIN_CAPACITY_SHARE * capacity:
        try:
            trials.append(trial(rate))
        except BenchmarkFailed as failed:
            if not trials:
                raise
            return RateSearch(trials=tuple(trials), error=failed)
        if trials[-1].meets_bound:
            low = rate
        else:
            high = rate
        if high / low < RATE_RESOLUTION if low else trials[-1].exceeds_bound_always:
            break
        rate = (low + high) / 2
    return RateSearch(trials=tuple(trials))


MIN_QUERIES = 64  # minimum queries per trial; fewer queries do not determine a 99th percentile
TRIALS_IN_BUDGET = 4  # number of trials that fill the budget
CAPACITY_BUDGET_SHARE = 0.2  # fraction of the budget for measuring the capacity (rate without a latency bound)
WORKER_MODULE = "tessera.inference.modes.serving_worker"
LOADGEN_MODULE, LOADGEN_PACKAGE, LOADGEN_EXTRA = "mlperf_loadgen", "mlcommons-loadgen", "loadgen"


def measure_server(network: LoadedNetwork, load: Load, sampling: Sampling) -> ModeOutcome:
    """Find the highest rate that meets the latency bound, or run one trial at the rate of `--target-rate`."""
    brief = Sampling(target=sampling.target, budget=CAPACITY_BUDGET_SHARE * sampling.budget, warmup=sampling.warmup)
    series = sample_windows(network, brief)
    if series.error is not None:  # no trial was made yet, so there is no partial result
        raise series.error
    capacity = series.rate
    loadgen = should_use_loadgen(load, network.size)
    seconds = sampling.budget / TRIALS_IN_BUDGET

    def run_trial(rate: float) -> RateTrial:
        # Limit the queries: far above the capacity this many already exceed the bound, and more only take longer.
        most = 2 * capacity * (seconds + load.max_latency)
        queries = max(MIN_QUERIES, round(min(rate * seconds, most)))
        run = run_loadgen_trial if loadgen else run_own_trial
        return run(network, rate, queries, load)

    if load.target_rate:
        search = RateSearch(trials=(run_trial(load.target_rate),))
    else:
        search = find_highest_rate(run_trial, capacity)
    shown = search.best or min(search.trials, key=lambda trial: trial.rate)
    metrics = make_metrics(
        {
            "throughput": shown.rate if shown.meets_bound else 0.0,
            "achieved": shown.achieved,
            "capacity": capacity,
            "max_latency": load.max_latency,
            "held": float(shown.meets_bound),
        }
    )
    generator = f"MLPerf LoadGen {version(LOADGEN_PACKAGE)}" if loadgen else "Tessera's own arrivals"
    return ModeOutcome(
        samples=Samples(values=(metrics["throughput"].value,), stopped_by="failure" if search.error else "search"),
        unit="images/s",
        direction="higher",
        rate=shown.achieved,
        metrics=metrics | compute_latency_metrics(shown.latencies),
        chosen={"load_generator": generator},
        details={"trials": [_trial_to_json(trial) for trial in search.trials]},
        notes=(
            f"load generator: {generator}",
            _format_verdict(shown),
            *_format_failure(search.error, len(search.trials), "trial"),
        ),
        error=search.error,
    )


def should_use_loadgen(load: Load, replicas: int) -> bool:
    """Return whether to use MLPerf LoadGen: if it is requested, or if it is installed and there is one replica."""
    installed = find_spec(LOADGEN_MODULE) is not None
    if load.generator == "loadgen":
        if not installed:
            raise MissingExtra(LOADGEN_PACKAGE, LOADGEN_EXTRA)
        if replicas > 1:
            raise TesseraError(
                "MLPerf LoadGen supports only one replica", got=replicas, do="use --load-generator tessera"
            )
    return load.generator != "tessera" and installed and replicas == 1


def run_own_trial(network: LoadedNetwork, rate: float, queries: int, load: Load) -> RateTrial:
    """Run a trial in which each replica generates its own Poisson arrivals.

    Splitting a Poisson process at random over replicas gives an independent Poisson process on each replica.
    """
    count = -(-queries // network.size)
    replicas = network.pool.run(f"{WORKER_MODULE}:serve_poisson", network.name, rate / network.size, count)
    latencies = tuple(latency for replica_latencies, _ in replicas for latency in replica_latencies)
    achieved = sum(len(replica_latencies) / seconds for replica_latencies, seconds in replicas)
    return RateTrial(rate=rate, latencies=latencies, achieved=achieved, bound=load.max_latency)


def run_loadgen_trial(network: LoadedNetwork, rate: float, queries: int, load: Load) -> RateTrial:
    """Run a trial with MLPerf LoadGen, which supports one replica only."""
    target = f"{WORKER_MODULE}:serve_loadgen"
    ((latencies, seconds),) = network.pool.run(target, network.name, rate, queries, load.max_latency)
    return RateTrial(rate=rate, latencies=tuple(latencies), achieved=len(latencies) / seconds, bound=load.max_latency)


def _trial_to_json(trial: RateTrial) -> dict[str, float | int | bool]:
    """Return a trial as JSON values for the record."""
    return {
        "rate": trial.rate,
        "questions": len(trial.latencies),
        "achieved": trial.achieved,
        "latency_p99": trial.latency,
        "held": trial.meets_bound,
    }


def _format_verdict(trial: RateTrial) -> str:
    verdict = "meets" if trial.meets_bound else "does not meet"
    return (
        f"{format_rate(trial.rate, 'images/s')} {verdict} the latency bound of {format_seconds(trial.bound)}: "
        f"{LATENCY_QUANTILE:.0%} of the queries were answered within {format_seconds(trial.latency)}"
    )
