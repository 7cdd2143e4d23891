"""Statistics of samples: order statistics and bootstrap intervals, no means.

Samples of a shared machine are skewed to the right by whatever else runs, so the figures here are quantiles.
NumPy only, because every worker imports this; SciPy comes in for the bootstrap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tessera.errors import TesseraError

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The figures of one set of samples, in their own unit."""

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
class Interval:
    """An estimate between two bounds.

    >>> Interval(1.02, 1.01, 1.03).relative
    0.009804
    """

    value: float
    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    @property
    def relative(self) -> float:
        """Half the width over the value."""
        return round((self.high - self.low) / 2 / abs(self.value), 6) if self.value else math.inf


def summarize(values: ArrayLike) -> Summary:
    """Median, quartiles, p90, p99, extremes and median absolute deviation.

    >>> summarize([3, 1, 2]).median
    2.0
    """
    x = _checked(values)
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


def median_ranks(count: int, confidence: float = 0.95) -> tuple[int, int] | None:
    """Ranks (0-based, inclusive) of the sorted samples that bracket the median with this confidence.

    Exact for up to 100 samples (binomial), by the normal approximation above; None where there are too few samples
    for this confidence.

    >>> median_ranks(10)
    (1, 8)
    >>> median_ranks(5) is None
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


def median_interval(values: ArrayLike, confidence: float = 0.95) -> Interval:
    """The median between two order statistics: no assumption about the distribution.

    With fewer samples than the confidence needs (6 at 95 %) the bounds are infinite.
    """
    x = np.sort(_checked(values))
    ranks = median_ranks(len(x), confidence)
    median = float(np.median(x))
    if ranks is None:
        return Interval(median, -math.inf, math.inf)
    return Interval(median, float(x[ranks[0]]), float(x[ranks[1]]))


def bootstrap_median(
    values: ArrayLike, confidence: float = 0.95, resamples: int = 2000, seed: int | None = None
) -> Interval:
    """The median with its bootstrap (percentile) interval."""
    x = _checked(values)
    return _bootstrap((x,), _median_of, confidence, resamples, seed)


def bootstrap_ratio(
    values: ArrayLike,
    base: ArrayLike,
    quantile: float = 0.5,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int | None = None,
) -> Interval:
    """The ratio of a quantile of `values` to that of `base`, with its bootstrap interval."""

    def ratio(a: Any, b: Any, axis: int = -1) -> Any:
        return np.quantile(a, quantile, axis=axis) / np.quantile(b, quantile, axis=axis)

    return _bootstrap((_checked(values), _checked(base)), ratio, confidence, resamples, seed)


def trimmed_interval(values: ArrayLike, confidence: float = 0.95, trim: float = 0.2) -> Interval:
    """The mean of the middle values with its interval (Yuen): nearly as sharp as a mean, deaf to a few outliers.

    >>> trimmed_interval([1.0, 1.1, 0.9, 1.0, 50.0]).value
    1.0333333333333334
    """
    from scipy.special import stdtrit

    x = np.sort(_checked(values))
    cut = int(len(x) * trim)
    kept = len(x) - 2 * cut
    middle = float(x[cut : cut + kept].mean())
    if kept < 2:
        return Interval(middle, -math.inf, math.inf)
    winsorized = np.clip(x, x[cut], x[len(x) - 1 - cut])
    error = float(winsorized.std(ddof=1)) * math.sqrt((len(x) - 1) / (kept * (kept - 1)))
    reach = float(stdtrit(kept - 1, (1 + confidence) / 2)) * error
    return Interval(middle, middle - reach, middle + reach)


def _median_of(x: Any, axis: int = -1) -> Any:
    return np.median(x, axis=axis)


def _bootstrap(
    data: tuple[Floats, ...], statistic: Any, confidence: float, resamples: int, seed: int | None
) -> Interval:
    from scipy.stats import bootstrap

    value = float(statistic(*data))
    if min(len(x) for x in data) < 2:
        return Interval(value, -math.inf, math.inf)
    result = bootstrap(
        data,
        statistic,
        n_resamples=resamples,
        confidence_level=confidence,
        method="percentile",
        vectorized=True,
        batch=max(1, 2_000_000 // max(len(x) for x in data)),
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Interval(value, float(result.low), float(result.high))


def _checked(values: ArrayLike) -> Floats:
    x = np.asarray(values, dtype=np.float64).ravel()
    if not len(x):
        raise TesseraError("no samples to take a statistic of", got=0, allowed="1 or more")
    return x
