"""Several callables timed in the same rounds on all ranks, so that their differences mean something.

How much of an exchange is hidden is a difference of two times, and an efficiency a ratio: taken one after the other,
they would carry the drift of the machine between them. Every rank calls the same callable at the same time, after a
barrier, in an order that changes from round to round; an iteration is as slow as its slowest rank.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Mapping
from typing import TypeVar

from tessera.launch.ranks import GlooRanks, MpiRanks
from tessera.launch.worker import Worker
from tessera.measure.clock import MACHINE_CLOCK
from tessera.measure.sampler import Fn, Series, joined, no_garbage_collection
from tessera.measure.samples import Samples, Sampling
from tessera.measure.statistics import median_interval
from tessera.measure.sync import Sync

WARM_UP = 0.2  # of the budget
LOOKS = 20  # blocks of rounds in a budget, after each of which rank 0 decides whether to go on
MOST_AT_ONCE = 50
LEAST_ROUNDS = 3

T = TypeVar("T")


def sample_rounds(functions: Mapping[str, Fn], sampling: Sampling, worker: Worker) -> dict[str, Samples]:
    """Samples of every callable, joined over the ranks; every rank gets the same.

    A fixed number of warm-ups and iterations is taken as given. Otherwise rank 0 goes on until it knows the median of
    the first callable well enough, or the budget, which is for all callables together, is spent.
    """
    with no_garbage_collection():
        rounds = _Rounds(functions, worker.sync)
        stopped_by = _fixed(rounds, sampling) if sampling.iterations is not None else _adaptive(rounds, sampling)
        own = {name: series.finish(stopped_by, sampling.confidence) for name, series in rounds.series.items()}
    every = gathered(worker, own)
    if len(every) == 1:
        return own
    return {name: joined([samples[name] for samples in every]) for name in own}


def gathered(worker: Worker, value: T) -> list[T]:
    """Everybody's value, by rank, on every rank."""
    if worker.size == 1:
        return [value]
    assert isinstance(worker.sync, GlooRanks | MpiRanks), "an image is cut over ranks"
    return [pickle.loads(data) for data in worker.sync.gather(pickle.dumps(value))]


class _Rounds:
    """One series per callable; a call is a sample, because a barrier has to come before each."""

    def __init__(self, functions: Mapping[str, Fn], sync: Sync) -> None:
        self.series = {name: Series(fn, MACHINE_CLOCK) for name, fn in functions.items()}
        self.sync = sync
        self.order = random.Random(sync.agree(random.randrange(1 << 30)))

    def take(self, count: int) -> int:
        """So many rounds; the clock after them."""
        names, now = list(self.series), 0
        for _ in range(count):
            self.order.shuffle(names)
            for name in names:
                self.sync.barrier()
                now = self.series[name].take()
        return now

    def forget(self) -> None:
        for series in self.series.values():
            series.forget()

    @property
    def first(self) -> Series:
        return next(iter(self.series.values()))


def _fixed(rounds: _Rounds, sampling: Sampling) -> str:
    assert sampling.iterations is not None
    _warm_up(rounds, sampling)
    rounds.take(sampling.iterations)
    return "count"


def _adaptive(rounds: _Rounds, sampling: Sampling) -> str:
    start = MACHINE_CLOCK.wall()
    block = _warm_up(rounds, sampling)
    reached = done = False
    while not done:
        now = rounds.take(block)
        count = len(rounds.first.wall)
        reached = (
            count >= sampling.min_samples
            and median_interval(rounds.first.wall, sampling.confidence).relative <= sampling.target
        )
        spent = now - start >= sampling.budget * 1e9 and count >= LEAST_ROUNDS
        reached, done = rounds.sync.agree((reached, reached or spent or count >= sampling.max_samples))
    return "target" if reached else "budget"


def _warm_up(rounds: _Rounds, sampling: Sampling) -> int:
    """As many rounds as are asked for, or a share of the budget; gives how many rounds to take between two looks."""
    if sampling.warmup is not None and sampling.iterations is not None:
        rounds.take(sampling.warmup)
        rounds.forget()
        return 1
    budget, start = sampling.budget * 1e9, rounds.take(1)  # the first call of anything is unlike all others
    now = rounds.take(1)
    block = rounds.sync.agree(max(1, min(MOST_AT_ONCE, int(budget / LOOKS / max(1, now - start)))))
    rounds.take(sampling.warmup or 0)
    cold = sampling.warmup is None
    while rounds.sync.agree(cold):
        cold = rounds.take(block) - start < WARM_UP * budget
    rounds.forget()
    return block
