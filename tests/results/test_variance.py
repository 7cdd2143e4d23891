"""Tests of moderated variances: estimating the prior, shrinkage, and the significance level of the t-test."""

import numpy as np
import pytest
from scipy import stats

from tessera.results.variance import NO_PRIOR, fit_prior, moderate_variances


def draw_variances(prior_df: float, scale: float, df: int, cases: int, rng: np.random.Generator) -> np.ndarray:
    """Draw sample variances of cases whose true variances are scaled inverse chi-square."""
    truth = scale * prior_df / rng.chisquare(prior_df, cases) if np.isfinite(prior_df) else np.full(cases, scale)
    return truth * rng.chisquare(df, cases) / df


@pytest.mark.parametrize("prior_df", [3.0, 10.0])
def test_the_prior_is_recovered(prior_df: float) -> None:
    rng = np.random.default_rng()
    prior = fit_prior(draw_variances(prior_df, 1e-4, 8, 20_000, rng), np.full(20_000, 8.0))
    assert prior.variance == pytest.approx(1e-4, rel=0.15)
    assert prior.df == pytest.approx(prior_df, rel=0.3)


def test_equal_cases_share_one_variance() -> None:
    rng = np.random.default_rng()
    variances, dfs = draw_variances(np.inf, 1e-4, 8, 2000, rng), np.full(2000, 8.0)
    prior = fit_prior(variances, dfs)
    assert prior.variance == pytest.approx(1e-4, rel=0.05)
    assert prior.df > 50
    moderated, df = moderate_variances(variances, dfs, prior)
    assert np.std(moderated) < np.std(variances) / 2
    assert np.all(df <= dfs + prior.df)


def test_a_noisy_case_keeps_its_variance_and_a_quiet_case_is_shrunk() -> None:
    rng = np.random.default_rng()
    variances, dfs = draw_variances(np.inf, 1e-4, 8, 1000, rng), np.full(1000, 8.0)
    variances[:2] = 1e-2, 1e-7
    moderated, df = moderate_variances(variances, dfs, fit_prior(variances, dfs))
    assert moderated[0] == pytest.approx(1e-2, rel=0.01)
    assert df[0] == pytest.approx(8, abs=0.1)
    assert moderated[1] > 5e-5


def test_moderated_t_keeps_its_level() -> None:
    """Without a true difference, about 1 % of the moderated t statistics exceed the two-sided 1 % point."""
    rng = np.random.default_rng()
    truth = 1e-4 * 6 / rng.chisquare(6, 20_000)
    variances, dfs = truth * rng.chisquare(4, 20_000) / 4, np.full(20_000, 4.0)
    moderated, df = moderate_variances(variances, dfs, fit_prior(variances, dfs))
    t = rng.normal(0, np.sqrt(truth)) / np.sqrt(moderated)
    assert 0.004 < np.mean(np.abs(t) > stats.t.ppf(0.995, df)) < 0.014


@pytest.mark.parametrize("variances", [[], [1.0, 2.0], [0.0] * 10])
def test_too_few_cases_have_no_prior(variances: list[float]) -> None:
    own, dfs = np.array(variances), np.full(len(variances), 4.0)
    assert fit_prior(own, dfs) == NO_PRIOR
    moderated, df = moderate_variances(own, dfs, NO_PRIOR)
    assert np.array_equal(moderated, own)
    assert np.array_equal(df, dfs)
