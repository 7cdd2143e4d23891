"""Tests of the stopping rule on synthetic series, and of its use by every sampling loop."""

from __future__ import annotations

import ast
import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.measure.stopping import MAX_BLOCK_SAMPLES, StoppingRule, WarmUp, choose_block_size, sample_until, warm_up

SOURCE = Path(__file__).parents[2] / "src" / "tessera"
LOOPS = (
    "measure/sampler.py",
    "measure/interleave.py",
    "spatial/bench/rounds.py",
    "inference/measures.py",
    "ab/runner.py",
    "ab/worker.py",
)


class Series:
    """A series of samples with given durations, on a clock that starts at 0."""

    def __init__(self, durations):
        self.durations = iter(durations)
        self.taken = []
        self.now = 0

    def take_sample(self):
        self.taken.append(next(self.durations))
        self.now += self.taken[-1]
        return self.now

    def compute_median(self, last):
        return sorted(self.taken[-last:])[last // 2]


def make_steady_series(duration=10):
    return Series(itertools.repeat(duration))


def test_a_fixed_count_is_taken_as_given():
    series = make_steady_series()
    assert sample_until(StoppingRule(count=7, budget_ns=1), series.take_sample).reason == "count"
    assert len(series.taken) == 7
    assert warm_up(WarmUp(count=3), series.take_sample, 0) == 0
    assert len(series.taken) == 10


@given(st.integers(1, 50), st.sampled_from([1.0, 1.1, 1.25]), st.integers(50, 120))
def test_sampling_stops_at_the_first_look_that_is_precise(first, growth, enough):
    series, looks = make_steady_series(), []

    def count_if_precise():
        looks.append(len(series.taken))
        return len(series.taken) if len(series.taken) >= enough else 0

    ending = sample_until(StoppingRule(min_samples=first, growth=growth), series.take_sample, precise=count_if_precise)
    assert ending == ("target", len(series.taken))
    assert looks[0] == first
    assert enough <= looks[-1] <= max(first, enough * growth + 1)
    assert all(after <= max(before + 1, before * growth + 1) for before, after in itertools.pairwise(looks))


def test_a_spent_budget_stops_after_the_minimum_of_samples():
    series = make_steady_series(100)
    assert sample_until(StoppingRule(budget_ns=50), series.take_sample, precise=lambda: 0).reason == "budget"
    assert len(series.taken) == 3
    series = make_steady_series(10)
    sample_until(StoppingRule(budget_ns=200, min_samples_over_budget=1), series.take_sample)
    assert len(series.taken) == 20


def test_looking_ahead_stops_before_a_sample_that_would_not_fit():
    series = make_steady_series(30)
    sample_until(StoppingRule(budget_ns=100, min_samples_over_budget=1, look_ahead=True), series.take_sample)
    assert series.now == 90


def test_sampling_stops_at_the_maximum_with_a_last_look():
    series, looks = make_steady_series(), []
    rule = StoppingRule(min_samples=10, max_samples=25, growth=2.0)
    ending = sample_until(rule, series.take_sample, precise=lambda: looks.append(len(series.taken)) or 0)
    assert (ending.reason, len(series.taken), looks) == ("samples", 25, [10, 20, 25])


def test_earlier_samples_count():
    series = make_steady_series()
    sample_until(StoppingRule(max_samples=10), series.take_sample, precise=lambda: 0, taken=8)
    assert len(series.taken) == 2


def test_warm_up_ends_when_two_windows_in_a_row_are_not_faster():
    series = Series(itertools.chain([1000 * 0.9**n for n in range(40)], itertools.repeat(15)))
    kept = warm_up(WarmUp(limit_ns=1e9, block=5), series.take_sample, 0, median=series.compute_median)
    assert kept == 15
    assert all(duration <= 17 for duration in series.taken[-kept:])


def test_warm_up_ends_at_its_limit_without_steady_samples():
    series = Series(1000 * 0.9**n for n in range(1000))
    assert warm_up(WarmUp(limit_ns=2000, block=1), series.take_sample, 0, median=series.compute_median) == 0
    assert series.now >= 2000
    series = make_steady_series(10)
    assert warm_up(WarmUp(limit_ns=100, block=4), series.take_sample, 0) == 0
    assert len(series.taken) == 12


class Follower:
    """The synchronisation of a rank that replays recorded decisions of rank 0."""

    def __init__(self, script):
        self.script = iter(script)

    def barrier(self):
        return None

    def agree(self, value):
        return next(self.script)


class Leader:
    """The synchronisation of rank 0, which records its decisions."""

    def __init__(self):
        self.agreed = []

    def barrier(self):
        return None

    def agree(self, value):
        self.agreed.append(value)
        return value


@pytest.mark.parametrize("slower", [0.1, 1, 30])
def test_every_rank_takes_as_many_samples_as_rank_0(slower):
    counts, sync = [], Leader()
    for factor in (1, slower):
        series = Series(factor * (20 - min(n, 10)) for n in range(10_000))
        block = choose_block_size(factor * 20, 100, sync)
        warm_up(WarmUp(limit_ns=400, block=block), series.take_sample, 0, median=series.compute_median, sync=sync)
        rule = StoppingRule(budget_ns=1000, max_samples=60, block=block)
        ending = sample_until(rule, series.take_sample, 0, precise=lambda: 0, sync=sync)
        counts.append((ending.reason, len(series.taken)))
        sync = Follower(sync.agreed) if isinstance(sync, Leader) else sync
    assert counts[0] == counts[1]


@given(st.floats(0, 1e9), st.floats(1, 1e9))
def test_a_block_has_at_least_one_sample_and_fills_its_time_at_most(sample_ns, block_ns):
    block = choose_block_size(sample_ns, block_ns)
    assert 1 <= block <= MAX_BLOCK_SAMPLES
    assert block == 1 or block * sample_ns <= block_ns


@pytest.mark.parametrize("path", LOOPS)
def test_every_sampling_loop_uses_the_stopping_rule(path):
    """Check that sampling functions contain no `while` loop, except for the calibration of inner loops."""
    tree = ast.parse((SOURCE / path).read_text())
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "tessera.measure.stopping"
        for alias in node.names
    }
    assert {"StoppingRule", "sample_until"} <= imported
    own_loops = [
        function.name
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef) and any(isinstance(node, ast.While) for node in ast.walk(function))
    ]
    assert [name for name in own_loops if name != "calibrate_loops"] == []
