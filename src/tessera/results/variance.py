"""Moderated variances: the variance between launches, estimated from all cases together.

The variance of one case cannot be estimated well from a few launches, but a run has many cases. Following the empirical
Bayes method of Smyth (2004), the variance of each case is shrunk towards the typical variance of all cases. The weight
of the typical variance is estimated from the data: large if the variances of the cases are similar, zero if they differ
widely. A case that is clearly noisier than the other cases keeps its own variance (after Phipson et al., 2016);
shrinking it would cause false alarms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

# Minimum number of cases to estimate a typical variance.
MIN_PRIOR_CASES = 3


@dataclass(frozen=True, slots=True)
class Prior:
    """The typical variance and its degrees of freedom (0: unknown)."""

    variance: float
    df: float


NO_PRIOR = Prior(0.0, 0.0)


def fit_prior(variances: FloatArray, dfs: FloatArray) -> Prior:
    """Estimate the prior from the variances of the cases.

    Cases without a variance (a single launch, or constant values) are left out. Outlying variances are clipped to
    three robust deviations, so that a few noisy cases do not dominate.
    """
    from scipy.special import psi, zeta

    usable = (dfs > 0) & (variances > 0)
    own, df = variances[usable], dfs[usable]
    if len(own) < MIN_PRIOR_CASES:
        return NO_PRIOR
    # The logarithm of a chi-square variance has a known mean and variance, psi and trigamma (= zeta(2, .)).
    logs = np.log(own) - psi(df / 2) + np.log(df / 2)
    middle = float(np.median(logs))
    reach = 3 * 1.4826 * float(np.median(np.abs(logs - middle)))
    logs = np.clip(logs, middle - reach, middle + reach)
    excess = float(np.var(logs, ddof=1) - np.mean(zeta(2, df / 2)))
    # The prior has at most as many degrees of freedom as the data that it was estimated from.
    most = float(df.sum())
    if excess <= 0:
        return Prior(float(np.exp(logs.mean())), most)
    prior_df = min(2 * _invert_trigamma(excess), most)
    return Prior(float(np.exp(logs.mean() + psi(prior_df / 2) - np.log(prior_df / 2))), prior_df)


def moderate_variances(variances: FloatArray, dfs: FloatArray, prior: Prior) -> tuple[FloatArray, FloatArray]:
    """Return the moderated variances and their degrees of freedom."""
    from scipy.special import fdtrc

    if prior.df == 0:
        return variances, dfs
    surprise = np.ones_like(variances)
    own = dfs > 0
    surprise[own] = fdtrc(dfs[own], prior.df, variances[own] / prior.variance)
    borrowed = prior.df * np.minimum(1.0, 2 * surprise)
    total = borrowed + dfs
    return (borrowed * prior.variance + dfs * variances) / total, total


def _invert_trigamma(value: float) -> float:
    """Return x with trigamma(x) = `value`, by Newton's method on 1/trigamma, which is nearly linear."""
    from scipy.special import zeta

    x: Any = 0.5 + 1 / value
    for _ in range(20):
        trigamma = zeta(2, x)
        step = trigamma * (1 - trigamma / value) / (-2 * zeta(3, x))
        x += step
        if abs(step) < 1e-10 * x:
            break
    return float(x)
