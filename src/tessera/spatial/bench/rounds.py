"""Interleaved timing of several callables on all ranks, so that their differences and ratios are meaningful.

The hidden part of an exchange is a difference of two times, and an efficiency is a ratio. Measured one after the other,
both would include the drift of the machine in between. Here every round calls each callable once, after a barrier, on
all ranks at the same time, in a random order. An iteration takes as long as its slowest rank.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Mapping
from typing import TypeVar

from tessera.launch.ranks import GlooRanks, MpiRanks
from tessera.launch.worker import Worker
from tessera.measure.clock import MACHINE_CLOCK
from tessera.measure.joins import join_samples
from tessera.measure.sampler import Fn, SampleSeries, disable_garbage_collection
from tessera.measure.samples import Samples, Sampling
from tessera.measure.statistics import estimate_median
from tessera.measure.stopping import StoppingRule, WarmUp, choose_block_size, sample_until, warm_up

WARMUP_BUDGET_SHARE = 0.2  # fraction of the budget
BLOCKS = 20  # blocks of rounds in a budget; rank 0 decides after each block whether to stop

T = TypeVar("T")


def sample_rounds(
    functions: Mapping[str, Fn], sampling: Sampling, worker: Worker, barrier: Callable[[], None] | None = None
) -> dict[str, Samples]:
    """Time every callable and join the samples of all ranks; every rank returns the same result.

    One call is one sample, because a barrier precedes every call. `barrier` is the barrier of the measured transport.
    Ranks that share memory leave it within microseconds. They leave the barrier of gloo (the default for ranks of
    torchrun) tens of microseconds apart, which would count as time of the call.

    Without a fixed number of iterations, sampling stops when the confidence interval of the first callable's median on
    rank 0 reaches the target, or when the budget for all callables is spent.
    """
    sync, budget = worker.sync, sampling.budget * 1e9
    series = {name: SampleSeries(fn, MACHINE_CLOCK) for name, fn in functions.items()}
    order, shuffled = list(series.values()), random.Random(sync.agree(random.randrange(1 << 30)))
    first, wait_for_ranks = order[0], barrier or sync.barrier

    def take_round() -> int:
        now = 0
        shuffled.shuffle(order)
        for function_series in order:
            wait_for_ranks()
            now = function_series.take_sample()
        return now

    def count_precise() -> int:
        precise = estimate_median(first.wall, sampling.confidence).relative <= sampling.target
        return len(first.wall) if precise else 0

    with disable_garbage_collection():
        start, block = MACHINE_CLOCK.wall(), 1
        warm_from = start
        if sampling.iterations is None or sampling.warmup is None:
            warm_from = take_round()  # cold first round: not used for the estimate of the block size
            block = choose_block_size(take_round() - warm_from, budget / BLOCKS, sync)
        how = WarmUp(count=sampling.warmup, limit_ns=WARMUP_BUDGET_SHARE * budget, block=block)
        warm_up(how, take_round, warm_from, sync=sync)
        for function_series in order:
            function_series.discard_warmup()
        rule = StoppingRule(
            budget_ns=budget,
            count=sampling.iterations,
            min_samples=sampling.min_samples,
            max_samples=sampling.max_samples,
            block=block,
        )
        ending = sample_until(rule, take_round, start, precise=count_precise, sync=sync)
        local_samples = {
            name: function_series.finish(ending.reason, sampling.confidence) for name, function_series in series.items()
        }
    ranks = gather_values(worker, local_samples)
    if len(ranks) == 1:
        return local_samples
    return {name: join_samples([samples[name] for samples in ranks]) for name in local_samples}


def gather_values(worker: Worker, value: T) -> list[T]:
    """Return the values of all ranks, by rank, on every rank."""
    if worker.size == 1:
        return [value]
    assert isinstance(worker.sync, GlooRanks | MpiRanks), "only ranks that are connected can gather values"
    return [pickle.loads(data) for data in worker.sync.gather(pickle.dumps(value))]
