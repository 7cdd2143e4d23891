"""Decide when warm-up ends and when sampling stops, for all sampling loops of the project.

Five loops use this module. Each defines the unit of a sample and the estimate that it watches:

| loop | a sample | watched estimate |
| --- | --- | --- |
| `measure.sampler` | one call, or an inner loop of calls | median of the samples |
| `measure.interleave` | one call of every callable | ratio of each callable to the first |
| `spatial.bench.rounds` | one call of every callable, on all ranks | median of the first callable |
| `inference.measures` | a window of batches on all replicas | median rate of the windows |
| `ab.runner` | a pair of launches, one per side | ratio of side B to side A |

Warm-up takes a fixed number of samples, or a share of the budget, or lasts until the samples stop getting faster.
Sampling stops when the estimate is precise enough (`target`), when the budget is spent (`budget`), at the maximum
number of samples (`samples`) or after a fixed number of samples (`count`). Rank 0 makes all decisions, because a
sample may be a collective operation that every rank has to take part in.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from tessera.measure.sync import SINGLE_RANK, Sync

# Warm-up continues while the median of a block is lower than the lowest so far by this fraction.
MIN_WARMUP_SPEEDUP = 0.02
STEADY_BLOCKS = 2  # number of consecutive blocks without such a speed-up that end the warm-up
MAX_BLOCK_SAMPLES = 50  # maximum number of samples between two decisions
MIN_SAMPLES = 3  # number of samples to take even if they exceed the budget

TakeSample = Callable[[], int]
"""Takes one sample and returns the clock after it, in nanoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """The length of the warm-up.

    With `count`, warm-up takes that number of samples. Otherwise it ends `limit_ns` nanoseconds after the start, or, if
    `warm_up` gets a `median`, as soon as two consecutive blocks are not faster than the fastest block so far. The
    decision is made after every block of `block` samples.
    """

    count: int | None = None
    limit_ns: float = 0.0
    block: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppingRule:
    """The rule that stops sampling.

    With `count`, sampling stops after that number of samples. Otherwise the estimate is examined for the first time at
    `min_samples` samples, and again whenever the number of samples has grown by the factor `growth`. Sampling also
    stops when the budget is spent and at least `min_samples_over_budget` samples are taken; with `look_ahead`, when
    another sample of mean duration would exceed the budget. Decisions are made after every block of `block` samples.
    """

    budget_ns: float = math.inf
    count: int | None = None
    min_samples: int = 1
    max_samples: float = math.inf
    growth: float = 1.0
    min_samples_over_budget: int = MIN_SAMPLES
    look_ahead: bool = False
    block: int = 1


class StopDecision(NamedTuple):
    """The reason to stop sampling ("" to continue), and the number of last samples that reach the target precision."""

    reason: str
    precise: int = 0


def choose_block_size(sample_ns: float, block_ns: float, sync: Sync = SINGLE_RANK) -> int:
    """Return the number of samples that take `block_ns` nanoseconds: 1 to MAX_BLOCK_SAMPLES, equal on all ranks."""
    return sync.agree(max(1, min(MAX_BLOCK_SAMPLES, int(block_ns / max(1.0, sample_ns)))))


def warm_up(
    rule: WarmUp,
    take: TakeSample,
    start_ns: int,
    *,
    median: Callable[[int], float] | None = None,
    sync: Sync = SINGLE_RANK,
) -> int:
    """Take warm-up samples, and return how many of the last samples are in the steady state and can be used.

    `median(n)` returns the median of the last `n` samples. Without `median` the result is 0.
    """
    if rule.count is not None:
        for _ in range(rule.count):
            take()
        return 0
    fastest, steady, late = math.inf, 0, False
    while steady < STEADY_BLOCKS and not late:
        now = _take_block(take, rule.block)
        if median is not None:
            level = median(rule.block)
            steady = 0 if level < fastest * (1 - MIN_WARMUP_SPEEDUP) else steady + 1
            fastest = min(fastest, level)
        steady, late = sync.agree((steady, now - start_ns >= rule.limit_ns))
    return (steady + 1) * rule.block if steady else 0


def sample_until(
    rule: StoppingRule,
    take: TakeSample,
    start_ns: int = 0,
    *,
    precise: Callable[[], int] | None = None,
    taken: int = 0,
    sync: Sync = SINGLE_RANK,
) -> StopDecision:
    """Take samples until the rule stops sampling, and return the reason.

    `precise()` returns the number of last samples whose estimate reaches the target precision; 0 if it is not reached.
    `taken` is the number of samples that exist already. The budget begins at `start_ns`.
    """
    if rule.count is not None:
        for _ in range(rule.count):
            take()
        return StopDecision("count")
    count = taken
    examine_at: float = max(rule.min_samples, taken)
    decision = StopDecision("")
    while not decision.reason:
        now = _take_block(take, rule.block)
        count += rule.block
        if precise is not None and count >= examine_at:
            examine_at = min(math.ceil(count * rule.growth), max(rule.max_samples, count + 1))
            if kept := precise():
                decision = StopDecision("target", kept)
        if not decision.reason and count >= rule.max_samples:
            decision = StopDecision("samples")
        ahead = (now - start_ns) / count if rule.look_ahead else 0
        if not decision.reason and count >= rule.min_samples_over_budget and now + ahead >= start_ns + rule.budget_ns:
            decision = StopDecision("budget")
        decision = sync.agree(decision)
    return decision


def _take_block(take: TakeSample, size: int) -> int:
    now = 0
    for _ in range(size):
        now = take()
    return now
