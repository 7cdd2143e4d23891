"""A/A test: compare identical work with itself to measure the rate of false alarms on this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tessera.ab.runner import INTERPRETERS_PER_SIDE, ABRunner
from tessera.launch.config import LaunchConfig
from tessera.measure.interleave import sample_interleaved
from tessera.measure.statistics import Estimate, compute_smallest_effect, judge_ratio

TRIALS_PER_START = 5  # number of trials before the interpreters are restarted


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTestResult:
    """The result of an A/A test: number of false alarms, and smallest detectable change."""

    layout: str
    seconds: float
    threshold: float
    trials: int
    false_alarms: int
    spread: float  # standard deviation of the trials' ratios
    smallest: float  # relative change that nine of ten trials would have detected


def build_work() -> Callable[[], Any]:
    """Return a callable with fixed, memory-bound work: the sum of two arrays of 1 MiB."""
    a, b = np.random.default_rng(0).random((2, 131_072))
    out = np.empty_like(a)
    return lambda: np.add(a, b, out=out)


def run_self_test(
    *,
    trials: int = 25,
    seconds: float = 1.0,
    threshold: float = 0.01,
    interpreters: int = INTERPRETERS_PER_SIDE,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[SelfTestResult, SelfTestResult]:
    """Run A/A trials within one process and between two processes; return both results. `seconds` is per trial."""
    work = build_work()
    twins = {"a": work, "b": work}
    within = []
    for trial in range(trials):
        progress(f"identical work in one process, {trial + 1} of {trials}")
        within.append(sample_interleaved(twins, budget=seconds).ratio("b", "a"))
    between: list[Estimate] = []
    while len(between) < trials:  # restart regularly: differences between interpreters are most of the noise
        with ABRunner(LaunchConfig(), LaunchConfig(), interpreters=interpreters) as sides:
            for _ in range(min(TRIALS_PER_START, trials - len(between))):
                progress(f"identical work in two processes, {len(between) + 1} of {trials}")
                between.append(sides.compare("tessera.ab.self_test:build_work", budget=seconds).ratio())
    return (
        _summarize_trials("one process, interleaved", within, seconds, threshold),
        _summarize_trials("two processes, interleaved bursts", between, seconds, threshold),
    )


def _summarize_trials(layout: str, ratios: list[Estimate], seconds: float, threshold: float) -> SelfTestResult:
    return SelfTestResult(
        layout=layout,
        seconds=seconds,
        threshold=threshold,
        trials=len(ratios),
        false_alarms=sum(judge_ratio(r, threshold) in ("slower", "faster") for r in ratios),
        spread=float(np.std([r.value for r in ratios])),
        smallest=float(np.quantile([compute_smallest_effect(r, threshold) for r in ratios], 0.9)),
    )
