"""Images that arrive at random and have to be answered in time: the highest rate at which 99 of 100 are."""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec

from tessera.errors import MissingExtra, TesseraError
from tessera.inference.measures.figures import latency_metrics
from tessera.inference.measures.throughput import sample_windows
from tessera.inference.modes.load import Load
from tessera.inference.modes.loadgen import MODULE
from tessera.inference.modes.outcome import Outcome
from tessera.inference.modes.search import QUANTILE, Found, Trial, highest_rate
from tessera.inference.replicas.crew import OnReplicas
from tessera.inference.task import Task
from tessera.measure.samples import Samples, Sampling
from tessera.report.figures import format_rate, format_seconds
from tessera.results.record import Metric

LEAST_QUESTIONS = 64  # of a trial: the 99th percentile of fewer says nothing
TRIALS_IN_BUDGET = 4
CAPACITY_SHARE = 0.2  # of the budget, to find out what the network reaches without any bound
SERVING = "tessera.inference.modes.serving"
PACKAGE, EXTRA = "mlcommons-loadgen", "loadgen"


def server(on: OnReplicas, task: Task, sampling: Sampling) -> Outcome:
    """The highest rate that is held, or whether the rate that is asked for is."""
    load = task.load
    brief = Sampling(target=sampling.target, budget=CAPACITY_SHARE * sampling.budget, warmup=sampling.warmup)
    taken = sample_windows(on, brief)
    if taken.error is not None:  # no question was asked yet: there is nothing of a server to keep
        raise taken.error
    capacity = taken.rate
    loadgen = uses_loadgen(load, on.size)
    seconds = sampling.budget / TRIALS_IN_BUDGET

    def trial(rate: float) -> Trial:
        # of a rate far beyond what is reached, as many as take longer than the bound allows, and no more
        most = 2 * capacity * (seconds + load.max_latency)
        questions = max(LEAST_QUESTIONS, round(min(rate * seconds, most)))
        return by_loadgen(on, rate, questions, load) if loadgen else by_tessera(on, rate, questions, load)

    found = Found(trials=(trial(load.target_rate),)) if load.target_rate else highest_rate(trial, capacity)
    shown = found.best or min(found.trials, key=lambda one: one.rate)
    metrics = {
        "throughput": Metric(shown.rate if shown.held else 0.0, "images/s", "higher"),
        "achieved": Metric(shown.achieved, "images/s", "higher"),
        "capacity": Metric(capacity, "images/s", "higher"),
        "max_latency": Metric(load.max_latency, "s"),
        "held": Metric(float(shown.held), "", "higher"),
    }
    who = f"MLPerf LoadGen {version(PACKAGE)}" if loadgen else "Tessera's own arrivals"
    return Outcome(
        samples=Samples(values=(metrics["throughput"].value,), stopped_by="failure" if found.error else "search"),
        unit="images/s",
        direction="higher",
        rate=shown.achieved,
        metrics=metrics | latency_metrics(shown.latencies),
        conditions={"load_generator": who, "trials": [_plain(one) for one in found.trials]},
        notes=(f"questions by {who}", _verdict(shown), *_broken_off(found)),
        error=found.error,
    )


def uses_loadgen(load: Load, replicas: int) -> bool:
    """Whether MLPerf LoadGen lets the questions arrive: asked for, or at hand; it asks one replica only."""
    installed = find_spec(MODULE) is not None
    if load.generator == "loadgen":
        if not installed:
            raise MissingExtra(PACKAGE, EXTRA)
        if replicas > 1:
            raise TesseraError("MLPerf LoadGen asks one replica", got=replicas, do="add --load-generator tessera")
    return load.generator != "tessera" and installed and replicas == 1


def by_tessera(on: OnReplicas, rate: float, questions: int, load: Load) -> Trial:
    """A trial with arrivals of our own, each replica with its share of them.

    A random choice of replica makes of one Poisson stream as many of the same kind.
    """
    count = -(-questions // on.size)
    found = on.replicas.run(f"{SERVING}:serve", on.name, rate / on.size, count)
    latencies = tuple(one for own, _ in found for one in own)
    achieved = sum(len(own) / took for own, took in found)
    return Trial(rate=rate, latencies=latencies, achieved=achieved, bound=load.max_latency)


def by_loadgen(on: OnReplicas, rate: float, questions: int, load: Load) -> Trial:
    """A trial of MLPerf LoadGen in the one replica."""
    (found,) = on.replicas.run(f"{SERVING}:serve_loadgen", on.name, rate, questions, load.max_latency)
    latencies, took = found
    return Trial(rate=rate, latencies=tuple(latencies), achieved=len(latencies) / took, bound=load.max_latency)


def _plain(trial: Trial) -> dict[str, float | int | bool]:
    """A trial as it is kept in a record."""
    return {
        "rate": trial.rate,
        "questions": len(trial.latencies),
        "achieved": trial.achieved,
        "latency_p99": trial.latency,
        "held": trial.held,
    }


def _broken_off(found: Found) -> tuple[str, ...]:
    """What became of a search that did not end as it should."""
    if found.error is None:
        return ()
    kept = len(found.trials)
    return (f"broken off: {kept} trial{'s' if kept > 1 else ''} before the failure kept",)


def _verdict(trial: Trial) -> str:
    answered = f"{QUANTILE:.0%} answered within {format_seconds(trial.latency)}"
    held = "held" if trial.held else "not held"
    return f"{format_rate(trial.rate, 'images/s')} {held}: {answered} of {format_seconds(trial.bound)} allowed"
