"""A/A comparisons: identical work against itself, to learn how often this machine cries wolf."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tessera.launch.alternate import INTERPRETERS, Alternator
from tessera.launch.config import LaunchConfig
from tessera.measure.interleave import sample_interleaved
from tessera.measure.statistics import Interval
from tessera.measure.verdict import smallest_effect, verdict_of

TOGETHER = 5  # trials on the same interpreters


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTest:
    """What identical work looked like: the layout, how often a change was called, what could have been seen."""

    layout: str
    seconds: float
    threshold: float
    trials: int
    false_alarms: int
    spread: float  # standard deviation of the trials' ratios
    smallest: float  # the smallest change nine of ten trials could have shown


def make_work() -> Callable[[], Any]:
    """A fixed piece of work that moves memory: the sum of two arrays of 1 MB."""
    a, b = np.random.default_rng(0).random((2, 131_072))
    out = np.empty_like(a)
    return lambda: np.add(a, b, out=out)


def self_test(
    *,
    trials: int = 25,
    seconds: float = 1.0,
    threshold: float = 0.01,
    interpreters: int = INTERPRETERS,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[SelfTest, SelfTest]:
    """Compare identical work in one process, and between two processes."""
    work = make_work()
    twins = {"a": work, "b": work}
    within = []
    for trial in range(trials):
        progress(f"identical work in one process, {trial + 1} of {trials}")
        found = sample_interleaved(twins, budget=seconds)
        within.append(found.ratio("b", "a"))
    between: list[Interval] = []
    while len(between) < trials:  # new interpreters every few trials: how far they lie apart is most of the noise
        with Alternator(LaunchConfig(), LaunchConfig(), interpreters=interpreters) as sides:
            for _ in range(min(TOGETHER, trials - len(between))):
                progress(f"identical work in two processes, {len(between) + 1} of {trials}")
                between.append(sides.compare("tessera.launch.selftest:make_work", budget=seconds).ratio())
    return (
        _judged("one process, interleaved", within, seconds, threshold),
        _judged("two processes, bursts in turns", between, seconds, threshold),
    )


def _judged(layout: str, ratios: list[Interval], seconds: float, threshold: float) -> SelfTest:
    return SelfTest(
        layout=layout,
        seconds=seconds,
        threshold=threshold,
        trials=len(ratios),
        false_alarms=sum(verdict_of(r, threshold) in ("slower", "faster") for r in ratios),
        spread=float(np.std([r.value for r in ratios])),
        smallest=float(np.quantile([smallest_effect(r, threshold) for r in ratios], 0.9)),
    )
