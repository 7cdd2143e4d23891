"""Several callables sampled in random alternation, so that noise hits all alike.

A ratio of two figures that were taken one after the other carries the drift of the machine between them. Taken in
turns, in a random order anew each round, each round gives its own ratio, and the machine's mood cancels.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tessera.errors import TesseraError
from tessera.measure.clock import MACHINE_CLOCK, Clock
from tessera.measure.sampler import Fn, Series, no_garbage_collection
from tessera.measure.samples import Samples
from tessera.measure.statistics import Floats, Interval, median_interval
from tessera.measure.sync import ALONE

WARMUP_SHARE = 0.1
LEAST_ROUNDS = 30
LONG_CALL_SHARE = 0.02  # a call longer than this share of the budget is timed singly without a trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Interleaved:
    """Samples of several callables, taken in the same rounds: the i-th values belong together."""

    samples: Mapping[str, Samples]
    stopped_by: str

    def ratio(self, name: str, base: str, confidence: float = 0.95) -> Interval:
        """How many times longer `name` takes than `base`, with its interval (median over rounds)."""
        for wanted in (name, base):
            if wanted not in self.samples:
                raise TesseraError("no such callable was sampled", got=wanted, allowed=self.samples)
        return paired_ratio(self.samples[name].values, self.samples[base].values, confidence)


def paired_ratio(values: tuple[float, ...], base: tuple[float, ...], confidence: float = 0.95) -> Interval:
    """The median over rounds of value / base.

    Neighbouring rounds are averaged into at most 200 groups by their geometric middle first: noise that lasts
    several rounds would otherwise make the interval too narrow.
    """
    logs: Floats = np.log(np.asarray(values)) - np.log(np.asarray(base))
    groups = np.array_split(logs, min(len(logs), 200))
    found = median_interval([float(np.median(g)) for g in groups], confidence)
    return Interval(math.exp(float(np.median(logs))), math.exp(found.low), math.exp(found.high))


def sample_interleaved(
    functions: Mapping[str, Fn],
    *,
    budget: float = 1.0,
    target: float = 0.002,
    seed: int | None = None,
    clock: Clock = MACHINE_CLOCK,
) -> Interleaved:
    """Sample callables in random alternation until every ratio to the first is known to `target`.

    The budget in seconds covers all of them together, warm-up included.
    """
    if len(functions) < 2:
        raise TesseraError("interleaving needs callables to alternate", got=len(functions), allowed="2 or more")
    order = random.Random(seed)
    start = clock.wall()
    deadline = start + round(budget * 1e9)
    with no_garbage_collection():
        series = {name: Series(fn, clock) for name, fn in functions.items()}
        _warm_up(series, budget, order)
        stopped_by = _rounds(series, target, deadline, order)
        done = {name: s.finish(stopped_by, 0.95) for name, s in series.items()}
    return Interleaved(samples=done, stopped_by=stopped_by)


def _warm_up(series: Mapping[str, Series], budget: float, order: random.Random) -> None:
    for one in series.values():
        one.take()
        one.forget()
        one.find_loops(ALONE, budget * 1e9 * LONG_CALL_SHARE)
    # callables of like length get the same number of inner loops, so that their overhead cancels
    loops = [one.loops for one in series.values()]
    if max(loops) <= 2 * min(loops):
        for one in series.values():
            one.loops = min(loops)
    clock = next(iter(series.values())).clock
    until = clock.wall() + round(budget * 1e9 * WARMUP_SHARE)
    now = 0
    while now < until:
        for one in order.sample(list(series.values()), len(series)):
            now = one.take()
    for one in series.values():
        one.forget()


def _rounds(series: Mapping[str, Series], target: float, deadline: int, order: random.Random) -> str:
    ones = list(series.values())
    first, others = ones[0], ones[1:]
    rounds, look_at, now = 0, LEAST_ROUNDS, 0
    while now < deadline or rounds < 3:
        order.shuffle(ones)
        for one in ones:
            now = one.take()
        rounds += 1
        if rounds >= look_at:
            look_at = math.ceil(rounds * 1.25)
            base = tuple(first.wall)
            if all(paired_ratio(tuple(o.wall), base).relative <= target for o in others):
                return "target"
    return "budget"
