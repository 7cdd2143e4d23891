"""Verdicts: is B really faster or slower than A, and by enough to matter?

The launch is the sampling unit: each gives one figure, and figures are compared on the logarithmic scale. A
change is called when it is beyond the threshold even at the near end of its interval, and stays so when the
false discoveries among all cases are held to `alpha` (Benjamini and Hochberg, 1995). It is `same` when the
whole interval lies within the threshold; whatever else is `unresolved`, with the smallest change that would
have been called.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tessera.measure.verdict import Verdict
from tessera.results.record import Direction
from tessera.results.variance import Floats, fit_prior, moderate

VERDICTS: tuple[Verdict, ...] = ("slower", "faster", "unresolved", "same")

# The smallest change that could be seen is the one that would be called in four of five repetitions.
POWER = 0.8
ENOUGH_LAUNCHES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The verdict on one case.

    `ratio` is B over A of the figures themselves, `low` and `high` its interval, `smallest` the smallest
    relative change that could have been called, `p` the adjusted probability of so much beyond the
    threshold by chance. What cannot be known, with one launch only, is None.
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
        """Whether the interval excludes that nothing changed."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The figures of one case in both runs, one per launch, all above zero."""

    before: tuple[float, ...]
    after: tuple[float, ...]
    direction: Direction


def judge(pairs: Sequence[Pair], *, threshold: float, alpha: float) -> list[Judgement]:
    """One judgement per pair; they are made together, because they share what is known about noise."""
    if not pairs:
        return []
    from scipy.special import stdtr, stdtrit

    difference, variances, dfs, shares = _moments(pairs)
    prior = fit_prior(variances, dfs)
    variance, df = moderate(variances, dfs, prior)
    alone = np.array([min(len(pair.before), len(pair.after)) < 2 for pair in pairs])
    known = ~alone if prior.df == 0 else np.ones(len(pairs), dtype=bool)
    df = np.where(known, df, 1.0)  # any number: nothing is said about these cases

    error = np.sqrt(variance * shares)
    margin = np.log1p(threshold)
    beyond = np.abs(difference) - margin
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        p = np.where(error > 0, np.minimum(1.0, 2 * stdtr(df, -beyond / error)), np.where(beyond > 0, 0.0, 1.0))
        half = stdtrit(df, 1 - alpha / 2) * error
        adjusted = np.ones(len(pairs))
        adjusted[known] = benjamini_hochberg(p[known])
        called = known & (adjusted < alpha)
        # What the next case would have had to reach to be called as well.
        level = min(alpha, alpha * (called.sum() + 1) / max(1, known.sum()))
        smallest = np.expm1(margin + (stdtrit(df, 1 - level / 2) + stdtrit(df, POWER)) * error)
        ratio, low, high = np.exp(difference), np.exp(difference - half), np.exp(difference + half)

    judgements = []
    for i, pair in enumerate(pairs):
        if not known[i]:
            judgements.append(Judgement(verdict="unresolved", ratio=float(ratio[i]), why=_one_launch(pair)))
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
                why=_why(verdict, float(low[i]), float(high[i]), bool(p[i] < alpha), threshold, int(known.sum())),
            )
        )
    return judgements


def benjamini_hochberg(p: Floats) -> Floats:
    """Probabilities adjusted so that, of all cases below a level, at most that share is there by chance.

    >>> benjamini_hochberg(np.array([0.01, 0.04, 0.03, 0.5])).round(4).tolist()
    [0.04, 0.0533, 0.0533, 0.5]
    """
    order = np.argsort(p)
    scaled = p[order] * len(p) / np.arange(1, len(p) + 1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, np.minimum.accumulate(scaled[::-1])[::-1])
    return adjusted


def _moments(pairs: Sequence[Pair]) -> tuple[Floats, Floats, Floats, Floats]:
    """Per pair: the difference of mean logarithms, the variance within, its degrees of freedom, 1/n + 1/m."""
    rows = []
    for pair in pairs:
        (n, mean_a, spread_a), (m, mean_b, spread_b) = _log_moments(pair.before), _log_moments(pair.after)
        df = n + m - 2
        rows.append((mean_b - mean_a, (spread_a + spread_b) / df if df else 0.0, df, 1 / n + 1 / m))
    difference, variance, dfs, shares = np.array(rows, dtype=np.float64).T
    return difference, variance, dfs, shares


def _log_moments(figures: tuple[float, ...]) -> tuple[int, float, float]:
    """Count, mean and sum of squares about it: plain Python, which is faster than NumPy for a handful."""
    logs = [math.log(figure) for figure in figures]
    mean = sum(logs) / len(logs)
    return len(logs), mean, sum((log - mean) ** 2 for log in logs)


def _one_launch(pair: Pair) -> str:
    return (
        f"{len(pair.before)} and {len(pair.after)} launches show no spread between launches: "
        f"run both with --launches {ENOUGH_LAUNCHES}"
    )


def _why(verdict: Verdict, low: float, high: float, alone: bool, threshold: float, cases: int) -> str:
    span = f"{low - 1:+.1%} to {high - 1:+.1%}"
    limit = f"{100 * threshold:.3g}%"
    if verdict in ("faster", "slower"):
        return f"all of {span} is beyond the threshold of {limit}"
    if verdict == "same":
        return f"all of {span} is within the threshold of {limit}"
    if alone:
        return f"{span} is beyond the threshold of {limit}, but one of {cases} cases may be so by chance"
    if low > 1 or high < 1:
        return f"there is a change, {span}, but perhaps less than the threshold of {limit}"
    return f"{span} may be no change or one beyond the threshold of {limit}"
