"""Verdicts on the cases of a comparison: faster, slower, same or unresolved.

The launch is the sampling unit: each launch gives one value, and logarithms of values are compared. A case is slower or
faster if its whole confidence interval is beyond the threshold and the false discovery rate over all cases stays below
`alpha` (Benjamini and Hochberg, 1995). It is `same` if the whole interval is within the threshold. All other cases are
`unresolved`, with the smallest change that would have been detected.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tessera.measure.statistics import Verdict
from tessera.results.record import Direction
from tessera.results.variance import FloatArray, fit_prior, moderate_variances

VERDICTS: tuple[Verdict, ...] = ("slower", "faster", "unresolved", "same")

# Statistical power: the smallest detectable change is detected with this probability.
STATISTICAL_POWER = 0.8
RECOMMENDED_LAUNCHES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The verdict on one case.

    `ratio` is the value of B over the value of A, `low` and `high` its confidence interval, `smallest` the smallest
    detectable relative change, `p` the adjusted p value of a change beyond the threshold. With a single launch, unknown
    values are None.
    """

    verdict: Verdict
    ratio: float
    low: float | None = None
    high: float | None = None
    smallest: float | None = None
    p: float | None = None
    why: str

    @property
    def changed(self) -> bool:
        """Whether the confidence interval excludes a ratio of 1."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuePair:
    """The positive values of one case in both runs, one per launch."""

    before: tuple[float, ...]
    after: tuple[float, ...]
    direction: Direction


def judge_pairs(pairs: Sequence[ValuePair], *, threshold: float, alpha: float) -> list[Judgement]:
    """Return the verdicts on all pairs, which are judged together because they share the estimate of the noise."""
    if not pairs:
        return []
    from scipy.special import stdtr, stdtrit

    difference, variances, dfs, shares = _compute_moments(pairs)
    prior = fit_prior(variances, dfs)
    variance, df = moderate_variances(variances, dfs, prior)
    single_launch = np.array([min(len(pair.before), len(pair.after)) < 2 for pair in pairs])
    known = ~single_launch if prior.df == 0 else np.ones(len(pairs), dtype=bool)
    df = np.where(known, df, 1.0)  # a placeholder: these cases stay unresolved

    error = np.sqrt(variance * shares)
    margin = np.log1p(threshold)
    beyond = np.abs(difference) - margin
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        p = np.where(error > 0, np.minimum(1.0, 2 * stdtr(df, -beyond / error)), np.where(beyond > 0, 0.0, 1.0))
        half = stdtrit(df, 1 - alpha / 2) * error
        adjusted = np.ones(len(pairs))
        adjusted[known] = benjamini_hochberg(p[known])
        called = known & (adjusted < alpha)
        # Significance level that one more case would have had to reach.
        level = min(alpha, alpha * (called.sum() + 1) / max(1, known.sum()))
        smallest = np.expm1(margin + (stdtrit(df, 1 - level / 2) + stdtrit(df, STATISTICAL_POWER)) * error)
        ratio, low, high = np.exp(difference), np.exp(difference - half), np.exp(difference + half)

    judgements = []
    for i, pair in enumerate(pairs):
        if not known[i]:
            judgements.append(Judgement(verdict="unresolved", ratio=float(ratio[i]), why=_explain_one_launch(pair)))
            continue
        verdict: Verdict = "unresolved"
        if called[i]:
            verdict = "faster" if (difference[i] < 0) == (pair.direction == "lower") else "slower"
        elif abs(difference[i]) + half[i] <= margin:
            verdict = "same"
        judgements.append(
            Judgement(
                verdict=verdict,
                ratio=float(ratio[i]),
                low=float(low[i]),
                high=float(high[i]),
                smallest=float(smallest[i]),
                p=float(adjusted[i]),
                why=_explain_verdict(
                    verdict, float(low[i]), float(high[i]), bool(p[i] < alpha), threshold, int(known.sum())
                ),
            )
        )
    return judgements


def benjamini_hochberg(p: FloatArray) -> FloatArray:
    """Adjust p values to control the false discovery rate.

    >>> benjamini_hochberg(np.array([0.01, 0.04, 0.03, 0.5])).round(4).tolist()
    [0.04, 0.0533, 0.0533, 0.5]
    """
    order = np.argsort(p)
    scaled = p[order] * len(p) / np.arange(1, len(p) + 1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, np.minimum.accumulate(scaled[::-1])[::-1])
    return adjusted


def _compute_moments(pairs: Sequence[ValuePair]) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return per pair: difference of mean logarithms, variance within runs, degrees of freedom, and 1/n + 1/m."""
    rows = []
    for pair in pairs:
        (n, mean_a, spread_a), (m, mean_b, spread_b) = (
            _compute_log_moments(pair.before),
            _compute_log_moments(pair.after),
        )
        df = n + m - 2
        rows.append((mean_b - mean_a, (spread_a + spread_b) / df if df else 0.0, df, 1 / n + 1 / m))
    difference, variance, dfs, shares = np.array(rows, dtype=np.float64).T
    return difference, variance, dfs, shares


def _compute_log_moments(figures: tuple[float, ...]) -> tuple[int, float, float]:
    """Return count, mean and sum of squared deviations of the logarithms; for few values faster than NumPy."""
    logs = [math.log(figure) for figure in figures]
    mean = sum(logs) / len(logs)
    return len(logs), mean, sum((log - mean) ** 2 for log in logs)


def _explain_one_launch(pair: ValuePair) -> str:
    return (
        f"{len(pair.before)} and {len(pair.after)} launches are too few to estimate the variation between launches: "
        f"run both with --launches {RECOMMENDED_LAUNCHES}"
    )


def _explain_verdict(
    verdict: Verdict, low: float, high: float, significant_alone: bool, threshold: float, cases: int
) -> str:
    span = f"{low - 1:+.1%} to {high - 1:+.1%}"
    limit = f"{100 * threshold:.3g}%"
    if verdict in ("faster", "slower"):
        return f"all of {span} is beyond the threshold of {limit}"
    if verdict == "same":
        return f"all of {span} is within the threshold of {limit}"
    if significant_alone:
        return f"{span} is beyond the threshold of {limit}, but with {cases} cases this may be chance"
    if low > 1 or high < 1:
        return f"there is a change, {span}, but perhaps less than the threshold of {limit}"
    return f"{span} includes both no change and a change beyond the threshold of {limit}"
