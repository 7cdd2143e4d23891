"""Sample several callables in random alternation, so that machine noise affects all of them equally.

A ratio of two times that were measured one after the other includes the drift of the machine in between. Here every
round takes one sample of each callable, in random order. The ratio is computed per round, so that drift cancels.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tessera.errors import TesseraError
from tessera.measure.clock import MACHINE_CLOCK, Clock
from tessera.measure.sampler import Fn, SampleSeries, disable_garbage_collection
from tessera.measure.samples import Samples
from tessera.measure.statistics import Estimate, Floats, estimate_median
from tessera.measure.stopping import StoppingRule, WarmUp, sample_until, warm_up
from tessera.measure.sync import SINGLE_RANK

WARMUP_BUDGET_SHARE = 0.1  # share of the budget for warm-up
MIN_ROUNDS = 30
LONG_CALL_BUDGET_SHARE = 0.02  # a call longer than this share of the budget is one sample, without an inner loop


@dataclass(frozen=True, slots=True, kw_only=True)
class Interleaved:
    """The samples of several callables, by name; the i-th samples of all callables were taken in the same round."""

    samples: Mapping[str, Samples]
    stopped_by: str

    def ratio(self, name: str, base: str, confidence: float = 0.95) -> Estimate:
        """Return the median over rounds of the time of `name` over the time of `base`, with its confidence interval."""
        for label in (name, base):
            if label not in self.samples:
                raise TesseraError("no callable of this name was sampled", got=label, allowed=self.samples)
        return estimate_paired_ratio(self.samples[name].values, self.samples[base].values, confidence)


def estimate_paired_ratio(values: tuple[float, ...], base: tuple[float, ...], confidence: float = 0.95) -> Estimate:
    """Return the median over rounds of value / base, with its confidence interval.

    For the interval, neighbouring rounds are combined into at most 200 groups by the median of their logarithms: noise
    that lasts several rounds would otherwise make the interval too narrow.
    """
    logs: Floats = np.log(np.asarray(values)) - np.log(np.asarray(base))
    groups = np.array_split(logs, min(len(logs), 200))
    middle = estimate_median([float(np.median(group)) for group in groups], confidence)
    return Estimate(math.exp(float(np.median(logs))), math.exp(middle.low), math.exp(middle.high))


def sample_interleaved(
    functions: Mapping[str, Fn],
    *,
    budget: float = 1.0,
    target: float = 0.002,
    seed: int | None = None,
    clock: Clock = MACHINE_CLOCK,
) -> Interleaved:
    """Sample callables in random alternation until the ratios to the first callable are known to within `target`.

    `target` is the relative half-width of the ratio's confidence interval. `budget` is the maximum time in seconds for
    all callables together, warm-up included.
    """
    if len(functions) < 2:
        raise TesseraError("interleaving requires several callables", got=len(functions), allowed="2 or more")
    start, budget_ns = clock.wall(), round(budget * 1e9)
    series = {name: SampleSeries(fn, clock) for name, fn in functions.items()}
    first, *others = series.values()
    order, generator = list(series.values()), random.Random(seed)

    def take_round() -> int:
        generator.shuffle(order)
        for one in order[:-1]:
            one.take_sample()
        return order[-1].take_sample()

    def count_precise() -> int:
        base = tuple(first.wall)
        precise = all(estimate_paired_ratio(tuple(other.wall), base).relative <= target for other in others)
        return len(base) if precise else 0

    with disable_garbage_collection():
        _calibrate_loops(order, budget_ns * LONG_CALL_BUDGET_SHARE)
        warm_up(WarmUp(limit_ns=budget_ns * WARMUP_BUDGET_SHARE), take_round, clock.wall())
        for one in order:
            one.discard_warmup()
        rule = StoppingRule(budget_ns=budget_ns, min_samples=MIN_ROUNDS, growth=1.25)
        reason = sample_until(rule, take_round, start, precise=count_precise).reason
        done = {name: one.finish(reason, 0.95) for name, one in series.items()}
    return Interleaved(samples=done, stopped_by=reason)


def _calibrate_loops(series: Sequence[SampleSeries], long_ns: float) -> None:
    """Choose the number of calls per sample of each callable; callables of similar duration get the same number.

    With equal numbers of calls, the overhead of the inner loop cancels in the ratio.
    """
    for one in series:
        one.take_sample()
        one.discard_warmup()
        one.calibrate_loops(SINGLE_RANK, long_ns)
    fewest, most = min(one.loops for one in series), max(one.loops for one in series)
    if most <= 2 * fewest:
        for one in series:
            one.loops = fewest
