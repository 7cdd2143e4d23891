"""Change point detection: the runs at which a series of values changed its level permanently.

Values of one case over many runs are noisy and contain outliers. The detection has three steps:

1. Outliers (Hampel filter) are removed; runs of consecutive outliers too long to be chance are clipped instead.
2. The logarithms are divided into segments of constant level with the least squared error, with a penalty per change
   point that grows with the noise (PELT, from `ruptures`).
3. A change point is kept if the levels before and after it differ by more than the threshold, and significantly (a
   t-test, corrected for the number of possible positions).

A level needs at least two runs; how many runs it takes to detect a change depends on the noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

MIN_RUNS = 8  # with fewer runs, hardly any change is significant
MIN_LEVEL_RUNS = 2  # minimum runs on either side of a change: a single run may be an outlier
MEDIAN_WINDOW_RUNS = 7  # runs in the sliding window whose median a run is compared with, that run included
OUTLIER_DEVIATIONS = 3.5  # standard deviations from the sliding median beyond which a run is an outlier
CHANGE_POINT_PENALTY = 3.0  # penalty per change point, in noise variances times the logarithm of the number of runs
FALSE_ALARM_PROBABILITY = 0.01  # probability of a false alarm in a series of normal noise without changes
MIN_OUTLIER_PROBABILITY = 0.001  # consecutive outliers that are less probable than this count as a change of level
MAD_TO_SIGMA = 1.4826  # standard deviation over median absolute deviation, for a normal distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelShift:
    """A change of level; `start` is the index of the first value of the new level."""

    start: int
    before: float
    after: float

    @property
    def change(self) -> float:
        """Change relative to the previous level, e.g. 0.1 for +10 %."""
        return self.after / self.before - 1


def find_change_points(
    values: Sequence[float], *, threshold: float = 0.03, errors: Sequence[float] | None = None
) -> tuple[LevelShift, ...]:
    """Return the lasting changes of a series of positive values, in order of time.

    `errors` are the relative standard errors of the values, if known (from several launches of a run). They are a lower
    bound of the noise.

    >>> [shift.start for shift in find_change_points([10, 10.1, 9.9, 10, 10.1, 12, 12.1, 11.9, 12])]
    [5]
    """
    if len(values) < MIN_RUNS:
        return ()
    figures = np.asarray(values, dtype=np.float64)
    logs = np.log(figures)
    own = np.zeros(len(logs)) if errors is None else np.asarray(errors, dtype=np.float64)
    # Values without noise, such as byte counts, get a minimum noise, so that clipping does not remove their changes.
    sigma = max(
        _compute_deviation(np.diff(logs)) / math.sqrt(2),
        float(np.median(own)),
        math.log1p(threshold) / OUTLIER_DEVIATIONS,
    )
    clipped = _clip_outliers(logs, OUTLIER_DEVIATIONS * sigma)
    kept = np.flatnonzero(~_find_outliers(logs, clipped))
    if len(kept) <= 2 * MIN_LEVEL_RUNS:
        return ()
    figures, logs, clipped, own = figures[kept], logs[kept], clipped[kept], own[kept]
    cuts = _find_cuts_by_pelt(clipped / sigma)
    while cuts:  # remove the least significant first: without it, adjacent change points may become significant
        margins = [
            min(
                _compute_level_difference(logs[a:b], logs[b:c]) / math.log1p(threshold),
                _compute_significance(clipped[a:b], clipped[b:c], own[a:c]),
            )
            for a, b, c in _list_adjacent_segments(cuts, len(kept))
        ]
        weakest = int(np.argmin(margins))
        if margins[weakest] >= 1:
            break
        del cuts[weakest]
    return tuple(
        LevelShift(
            start=int(kept[cut]), before=_compute_level(figures[start:cut]), after=_compute_level(figures[cut:end])
        )
        for start, cut, end in _list_adjacent_segments(cuts, len(kept))
    )


def _clip_outliers(logs: FloatArray, reach: float) -> FloatArray:
    """Clip each value of a series to its sliding median ± `reach`."""
    windows = np.lib.stride_tricks.sliding_window_view(logs, min(MEDIAN_WINDOW_RUNS, len(logs)))
    # At both ends, use the first and the last full window.
    places = np.clip(np.arange(len(logs)) - MEDIAN_WINDOW_RUNS // 2, 0, len(windows) - 1)
    middle = np.median(windows, axis=1)[places]
    return np.clip(logs, middle - reach, middle + reach)


def _find_outliers(logs: FloatArray, clipped: FloatArray) -> NDArray[np.bool_]:
    """Return a mask of outliers: sequences of clipped values that are short enough to be due to chance.

    The rate of outliers is estimated from the rest of the series. The probability of a sequence is multiplied by the
    number of its possible positions: one at either end of the series (where a new level may start), any in between.
    """
    outliers = np.zeros(len(logs), dtype=bool)
    for side in (logs > clipped, logs < clipped):
        edges = np.flatnonzero(np.diff(side, prepend=False, append=False))
        for first, last in zip(edges[::2], edges[1::2], strict=True):
            others, runs = int(side.sum() - (last - first)), int(last - first)
            # Add half an outlier, because the rate is uncertain in a short series.
            rate = (others + 0.5) / (len(logs) - runs + 1)
            places = 1 if first == 0 or last == len(logs) else len(logs)
            outliers[first:last] = places * rate**runs >= MIN_OUTLIER_PROBABILITY
    return outliers


def _find_cuts_by_pelt(series: FloatArray) -> list[int]:
    """Return the change points (first index of each new level) of a series whose noise has unit variance, by PELT."""
    from ruptures import KernelCPD

    search = KernelCPD(kernel="linear", min_size=MIN_LEVEL_RUNS).fit(series - np.median(series))
    return [int(cut) for cut in search.predict(pen=CHANGE_POINT_PENALTY * math.log(len(series)))[:-1]]


def _list_adjacent_segments(cuts: Sequence[int], count: int) -> list[tuple[int, int, int]]:
    """Return each change point with the start of the segment before it and the end of the segment after it."""
    ends = [0, *cuts, count]
    return list(zip(ends[:-2], cuts, ends[2:], strict=True))


def _compute_level_difference(left: FloatArray, right: FloatArray) -> float:
    return abs(float(np.median(right) - np.median(left)))


def _compute_significance(left: FloatArray, right: FloatArray, errors: FloatArray) -> float:
    """Return the difference of two levels divided by the smallest significant difference; above 1 is significant."""
    from scipy.special import stdtrit

    count = len(left) + len(right)
    squares = float(((left - left.mean()) ** 2).sum() + ((right - right.mean()) ** 2).sum())
    spread = max(squares / (count - 2), float((errors**2).mean()))
    places = max(1, count - 2 * MIN_LEVEL_RUNS + 1)
    largest = float(stdtrit(count - 2, 1 - FALSE_ALARM_PROBABILITY / 2 / places)) * math.sqrt(
        spread * (1 / len(left) + 1 / len(right))
    )
    return abs(float(right.mean() - left.mean())) / largest if largest else math.inf


def _compute_deviation(differences: FloatArray) -> float:
    """Return a robust estimate of the standard deviation, from the median absolute deviation."""
    return MAD_TO_SIGMA * float(np.median(np.abs(differences - np.median(differences))))


def _compute_level(figures: FloatArray) -> float:
    return float(np.median(figures))
