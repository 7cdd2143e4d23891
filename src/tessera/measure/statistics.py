"""Statistics of samples: quantiles, confidence intervals of median and trimmed mean, and the verdict on a ratio.

On a shared machine, other processes skew samples to the right, so samples are summarised by quantiles, not means. Every
worker imports this module; SciPy is imported only by `estimate_trimmed_mean`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tessera.errors import TesseraError

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Quantiles and median absolute deviation of a set of samples, in the unit of the samples."""

    count: int
    low: float
    p5: float
    p25: float
    median: float
    p75: float
    p90: float
    p99: float
    high: float
    mad: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimated value with the bounds of its confidence interval.

    >>> Estimate(1.02, 1.01, 1.03).relative
    0.009804
    """

    value: float
    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    @property
    def relative(self) -> float:
        """The half-width of the interval divided by the value."""
        return round((self.high - self.low) / 2 / abs(self.value), 6) if self.value else math.inf

    def scale(self, factor: float) -> Estimate:
        """Return the estimate of a quantity that is `factor` times this one."""
        return Estimate(self.value * factor, self.low * factor, self.high * factor)

    def invert(self) -> Estimate:
        """Return the estimate of the reciprocal of a positive quantity."""
        return Estimate(1 / self.value, 1 / self.high, 1 / self.low)


def summarize(values: ArrayLike) -> Summary:
    """Compute median, quartiles, p90, p99, extremes and median absolute deviation.

    >>> summarize([3, 1, 2]).median
    2.0
    """
    x = _to_sample_array(values)
    low, p5, p25, median, p75, p90, p99, high = (
        float(q) for q in np.quantile(x, [0, 0.05, 0.25, 0.5, 0.75, 0.9, 0.99, 1])
    )
    return Summary(
        count=len(x),
        low=low,
        p5=p5,
        p25=p25,
        median=median,
        p75=p75,
        p90=p90,
        p99=p99,
        high=high,
        mad=float(np.median(np.abs(x - median))),
    )


def find_median_interval_indices(count: int, confidence: float = 0.95) -> tuple[int, int] | None:
    """Return the indices (0-based, inclusive) of the two sorted samples that bound the median's confidence interval.

    They are exact (binomial) for up to 100 samples, and use the normal approximation for more. The result is None if
    there are too few samples for this confidence.

    >>> find_median_interval_indices(10)
    (1, 8)
    >>> find_median_interval_indices(5) is None
    True
    """
    tail = (1 - confidence) / 2
    if count <= 100:
        below, total = 0, 2**count
        rank = -1
        while rank < count // 2:
            below += math.comb(count, rank + 1)
            if below > tail * total:
                break
            rank += 1
    else:
        rank = math.floor(count / 2 - NormalDist().inv_cdf(1 - tail) * math.sqrt(count) / 2) - 1
    return (rank, count - 1 - rank) if rank >= 0 else None


def estimate_median(values: ArrayLike, confidence: float = 0.95) -> Estimate:
    """Return the median with its confidence interval between two order statistics, for any distribution.

    With fewer samples than the confidence requires (6 at 95 %) the bounds are infinite.
    """
    x = np.sort(_to_sample_array(values))
    ranks = find_median_interval_indices(len(x), confidence)
    median = float(np.median(x))
    if ranks is None:
        return Estimate(median, -math.inf, math.inf)
    return Estimate(median, float(x[ranks[0]]), float(x[ranks[1]]))


def estimate_trimmed_mean(values: ArrayLike, confidence: float = 0.95, trim: float = 0.2) -> Estimate:
    """Return the trimmed mean, which is robust against outliers, with its confidence interval (Yuen).

    >>> estimate_trimmed_mean([1.0, 1.1, 0.9, 1.0, 50.0]).value
    1.0333333333333334
    """
    from scipy.special import stdtrit

    x = np.sort(_to_sample_array(values))
    cut = int(len(x) * trim)
    kept = len(x) - 2 * cut
    mean = float(x[cut : cut + kept].mean())
    if kept < 2:
        return Estimate(mean, -math.inf, math.inf)
    winsorized = np.clip(x, x[cut], x[len(x) - 1 - cut])
    error = float(winsorized.std(ddof=1)) * math.sqrt((len(x) - 1) / (kept * (kept - 1)))
    half_width = float(stdtrit(kept - 1, (1 + confidence) / 2)) * error
    return Estimate(mean, mean - half_width, mean + half_width)


def _to_sample_array(values: ArrayLike) -> Floats:
    """Return values as a one-dimensional array; raise an error if it is empty."""
    x = np.asarray(values, dtype=np.float64).ravel()
    if not len(x):
        raise TesseraError("cannot compute a statistic without samples", got=0, allowed="1 or more")
    return x


Verdict = Literal["slower", "faster", "same", "unresolved"]


def judge_ratio(ratio: Estimate, threshold: float) -> Verdict:
    """Return the verdict on a ratio of times.

    The verdict is `slower` or `faster` if the interval excludes 1 and the ratio is beyond the threshold, `same` if the
    whole interval is within the threshold, and `unresolved` otherwise.

    >>> judge_ratio(Estimate(1.02, 1.005, 1.035), 0.01)
    'slower'
    >>> judge_ratio(Estimate(1.02, 0.995, 1.045), 0.01)
    'unresolved'
    >>> judge_ratio(Estimate(1.002, 0.998, 1.006), 0.01)
    'same'
    """
    beyond = 1 + threshold
    if ratio.low > 1 and ratio.value > beyond:
        return "slower"
    if ratio.high < 1 and ratio.value < 1 / beyond:
        return "faster"
    return "same" if ratio.high <= beyond and ratio.low >= 1 / beyond else "unresolved"


def compute_smallest_effect(ratio: Estimate, threshold: float) -> float:
    """Return the smallest relative change that would be significant, given the width of the ratio's interval."""
    if not ratio.low > 0:
        return math.inf
    return max(threshold, ratio.high / ratio.value - 1, ratio.value / ratio.low - 1)
