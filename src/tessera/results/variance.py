"""How much figures vary between launches, learnt from all cases together.

Five launches say little about the spread of one case, but a run has many cases. Following the empirical
Bayes method of Smyth (2004), each case's variance is drawn towards what is typical of all cases, with a
weight that the cases themselves suggest: great where their variances are alike, none where they have
nothing in common. A case that is plainly noisier than the others keeps its own variance (after Phipson et
al., 2016): borrowing calm from its neighbours would make it a false alarm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Fewer cases than this say nothing about what is typical.
MIN_CASES = 3


@dataclass(frozen=True, slots=True)
class Prior:
    """The typical variance, and how many degrees of freedom that knowledge is worth (0: nothing is known)."""

    variance: float
    df: float


NOTHING = Prior(0.0, 0.0)


def fit_prior(variances: Floats, dfs: Floats) -> Prior:
    """What the cases' own variances say about a typical case.

    Cases without spread of their own (one launch each, or figures that never differ) have no say. Variances
    far out are drawn in to three robust deviations, so that a few noisy cases do not hide what the others
    agree on.
    """
    from scipy.special import psi, zeta

    usable = (dfs > 0) & (variances > 0)
    own, df = variances[usable], dfs[usable]
    if len(own) < MIN_CASES:
        return NOTHING
    # The logarithm of a chi-square variance has a known mean and variance, psi and trigamma (= zeta(2, .)).
    logs = np.log(own) - psi(df / 2) + np.log(df / 2)
    middle = float(np.median(logs))
    reach = 3 * 1.4826 * float(np.median(np.abs(logs - middle)))
    logs = np.clip(logs, middle - reach, middle + reach)
    excess = float(np.var(logs, ddof=1) - np.mean(zeta(2, df / 2)))
    # No knowledge is worth more than the launches it was learnt from.
    most = float(df.sum())
    if excess <= 0:
        return Prior(float(np.exp(logs.mean())), most)
    prior_df = min(2 * _inverse_trigamma(excess), most)
    return Prior(float(np.exp(logs.mean() + psi(prior_df / 2) - np.log(prior_df / 2))), prior_df)


def moderate(variances: Floats, dfs: Floats, prior: Prior) -> tuple[Floats, Floats]:
    """Each case's variance and its degrees of freedom after borrowing from the others."""
    from scipy.special import fdtrc

    if prior.df == 0:
        return variances, dfs
    surprise = np.ones_like(variances)
    own = dfs > 0
    surprise[own] = fdtrc(dfs[own], prior.df, variances[own] / prior.variance)
    borrowed = prior.df * np.minimum(1.0, 2 * surprise)
    total = borrowed + dfs
    return (borrowed * prior.variance + dfs * variances) / total, total


def _inverse_trigamma(value: float) -> float:
    """The x at which trigamma is `value`, by Newton's method on its reciprocal, which is nearly straight."""
    from scipy.special import zeta

    x: Any = 0.5 + 1 / value
    for _ in range(20):
        trigamma = zeta(2, x)
        step = trigamma * (1 - trigamma / value) / (-2 * zeta(3, x))
        x += step
        if abs(step) < 1e-10 * x:
            break
    return float(x)
