"""Statistics against SciPy's own and against distributions whose truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tessera.errors import TesseraError
from tessera.measure.joins import JOINS, join_ranks
from tessera.measure.statistics import (
    bootstrap_median,
    bootstrap_ratio,
    median_interval,
    median_ranks,
    summarize,
    trimmed_interval,
)

finite = st.floats(-1e6, 1e6, allow_nan=False)


@given(st.lists(finite, min_size=1, max_size=200))
def test_summary_agrees_with_scipy_and_numpy(values):
    found = summarize(values)
    assert found.count == len(values)
    assert found.median == pytest.approx(np.median(values))
    assert found.p90 == pytest.approx(np.percentile(values, 90))
    assert found.mad == pytest.approx(stats.median_abs_deviation(values))
    assert found.low <= found.p25 <= found.median <= found.p75 <= found.p99 <= found.high


@given(st.integers(6, 400), st.sampled_from([0.9, 0.95, 0.99]))
def test_median_ranks_hold_their_confidence_and_are_the_narrowest(count, confidence):
    ranks = median_ranks(count, confidence)
    if ranks is None:
        assert stats.binom.cdf(0, count, 0.5) > (1 - confidence) / 2
        return
    low, high = ranks
    outside = 2 * stats.binom.cdf(low, count, 0.5)
    slack = 1e-9 if count <= 100 else 0.02
    assert outside <= 1 - confidence + slack
    if count <= 100:
        assert 2 * stats.binom.cdf(low + 1, count, 0.5) > 1 - confidence
    assert low + high == count - 1


@pytest.mark.parametrize("kind", ["normal", "lognormal", "mixture"])
@pytest.mark.parametrize("count", [15, 60, 300])
def test_the_interval_covers_the_true_median_as_often_as_it_says(kind, count):
    rng = np.random.default_rng()
    draw = {
        "normal": lambda: rng.normal(10, 1, count),
        "lognormal": lambda: rng.lognormal(math.log(10), 1, count),
        "mixture": lambda: 10 + np.where(rng.random(count) < 0.5, -1, 1) * rng.exponential(1, count) ** 2,
    }[kind]
    hits = 0
    for _ in range(600):
        found = median_interval(draw(), 0.95)
        hits += found.low <= 10 <= found.high
    assert hits / 600 > 0.9


def test_too_few_samples_promise_nothing():
    found = median_interval([1.0, 2.0, 3.0])
    assert (found.low, found.high) == (-math.inf, math.inf)


def test_bootstrap_of_the_median_covers_and_shrinks():
    rng = np.random.default_rng()
    hits = 0
    for _ in range(150):
        found = bootstrap_median(rng.lognormal(0, 0.5, 80), resamples=400)
        hits += found.low <= 1.0 <= found.high
    assert hits / 150 > 0.82
    wide = bootstrap_median(rng.normal(10, 1, 30), resamples=500)
    narrow = bootstrap_median(rng.normal(10, 1, 3000), resamples=500)
    assert narrow.relative < wide.relative


def test_bootstrap_of_a_ratio_finds_a_planted_one():
    rng = np.random.default_rng()
    base = rng.lognormal(0, 0.05, 2000)
    found = bootstrap_ratio(1.1 * rng.lognormal(0, 0.05, 2000), base)
    assert found.low < found.value < found.high
    assert 1.08 < found.low < 1.11 < found.high + 0.01 < 1.14
    low = bootstrap_ratio(base * 2, base, quantile=0.25)
    assert low.value == pytest.approx(2)


def test_bootstrap_repeats_with_a_seed():
    values = np.random.default_rng().random(50)
    assert bootstrap_median(values, seed=3) == bootstrap_median(values, seed=3)


@given(st.lists(finite, min_size=5, max_size=40))
@settings(max_examples=50)
def test_the_trimmed_mean_is_scipys(values):
    assert trimmed_interval(values).value == pytest.approx(stats.trim_mean(values, 0.2), abs=1e-6)


def test_the_trimmed_interval_covers_and_shrugs_at_outliers():
    rng = np.random.default_rng()
    hits = 0
    for _ in range(1000):
        values = rng.normal(5, 1, 20)
        hits += (
            abs(trimmed_interval(values, 0.95).value - 5)
            <= (trimmed_interval(values).high - trimmed_interval(values).low) / 2
        )
    assert 0.91 < hits / 1000 < 0.985
    calm = rng.normal(5, 1, 20)
    struck = np.append(calm[:-2], [500.0, 900.0])
    assert trimmed_interval(struck).relative < 4 * trimmed_interval(calm).relative


@given(st.lists(st.lists(finite, min_size=3, max_size=3), min_size=1, max_size=5))
def test_joins_are_what_their_names_say(rows):
    for name, expected in {
        "max over ranks": np.max(rows, axis=0),
        "min over ranks": np.min(rows, axis=0),
        "mean over ranks": np.mean(rows, axis=0),
        "sum over ranks": np.sum(rows, axis=0),
    }.items():
        assert join_ranks(rows, name) == pytest.approx(tuple(expected))
    assert set(JOINS) == {"max over ranks", "min over ranks", "mean over ranks", "sum over ranks"}


def test_joining_unequal_ranks_or_by_an_unknown_name_is_refused():
    with pytest.raises(TesseraError, match="unequal"):
        join_ranks([(1.0,), (1.0, 2.0)])
    with pytest.raises(TesseraError, match="unknown way"):
        join_ranks([(1.0,)], "median over ranks")
    with pytest.raises(TesseraError, match="no samples"):
        summarize([])
