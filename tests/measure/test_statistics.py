"""Tests of statistics, compared with SciPy, and on distributions with known parameters."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tessera.errors import TesseraError
from tessera.measure.joins import JOIN_RULES, join_ranks
from tessera.measure.statistics import (
    estimate_median,
    estimate_trimmed_mean,
    find_median_interval_indices,
    summarize,
)

finite = st.floats(-1e6, 1e6, allow_nan=False)


@given(st.lists(finite, min_size=1, max_size=200))
def test_summary_agrees_with_scipy_and_numpy(values):
    summary = summarize(values)
    assert summary.count == len(values)
    assert summary.median == pytest.approx(np.median(values))
    assert summary.p90 == pytest.approx(np.percentile(values, 90))
    assert summary.mad == pytest.approx(stats.median_abs_deviation(values))
    assert summary.low <= summary.p25 <= summary.median <= summary.p75 <= summary.p99 <= summary.high


@settings(deadline=None)
@given(st.integers(6, 400), st.sampled_from([0.9, 0.95, 0.99]))
def test_median_interval_indices_have_their_confidence_and_are_the_narrowest(count, confidence):
    ranks = find_median_interval_indices(count, confidence)
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


@pytest.mark.parametrize("distribution", ["normal", "lognormal", "mixture"])
@pytest.mark.parametrize("count", [15, 60, 300])
def test_coverage_of_the_median_interval(distribution, count):
    rng = np.random.default_rng()
    draw = {
        "normal": lambda: rng.normal(10, 1, count),
        "lognormal": lambda: rng.lognormal(math.log(10), 1, count),
        "mixture": lambda: 10 + np.where(rng.random(count) < 0.5, -1, 1) * rng.exponential(1, count) ** 2,
    }[distribution]
    hits = 0
    for _ in range(600):
        estimate = estimate_median(draw(), 0.95)
        hits += estimate.low <= 10 <= estimate.high
    assert hits / 600 > 0.9


def test_too_few_samples_have_an_infinite_interval():
    estimate = estimate_median([1.0, 2.0, 3.0])
    assert (estimate.low, estimate.high) == (-math.inf, math.inf)


@given(st.lists(finite, min_size=5, max_size=40))
@settings(max_examples=50)
def test_the_trimmed_mean_equals_scipy(values):
    assert estimate_trimmed_mean(values).value == pytest.approx(stats.trim_mean(values, 0.2), abs=1e-6)


def test_coverage_of_the_trimmed_mean_interval_and_its_robustness():
    rng = np.random.default_rng()
    hits = 0
    for _ in range(1000):
        values = rng.normal(5, 1, 20)
        hits += (
            abs(estimate_trimmed_mean(values, 0.95).value - 5)
            <= (estimate_trimmed_mean(values).high - estimate_trimmed_mean(values).low) / 2
        )
    assert 0.91 < hits / 1000 < 0.985
    without_outliers = rng.normal(5, 1, 20)
    with_outliers = np.append(without_outliers[:-2], [500.0, 900.0])
    assert estimate_trimmed_mean(with_outliers).relative < 4 * estimate_trimmed_mean(without_outliers).relative


@given(st.lists(st.lists(finite, min_size=3, max_size=3), min_size=1, max_size=5))
def test_join_rules(rows):
    for name, expected in {
        "max over ranks": np.max(rows, axis=0),
        "sum over ranks": np.sum(rows, axis=0),
    }.items():
        assert join_ranks(rows, name) == pytest.approx(tuple(expected))
    assert set(JOIN_RULES) == {"max over ranks", "sum over ranks"}


def test_joining_unequal_ranks_is_refused():
    with pytest.raises(TesseraError, match="unequal"):
        join_ranks([(1.0,), (1.0, 2.0)])
    with pytest.raises(TesseraError, match="cannot compute a statistic without samples"):
        summarize([])
