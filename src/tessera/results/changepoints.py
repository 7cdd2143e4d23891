"""Where a series of figures changed its level for good, and by how much.

Figures of one case over many runs are noisy and hold outliers, so a change is called in four steps. Outliers are drawn
in to a few deviations from their neighbours (Hampel). The logarithms are then cut into stretches of one level with the
least squared error, each cut paying a penalty that grows with the noise (PELT, from `ruptures`). A cut stays only when
the levels beside it differ by more than the threshold, and by more than the best cut of pure noise would (a t-test,
corrected for having chosen the place). Last, the shorter side must be longer than a row of outliers can be expected to
be in this very series. Two runs are the least that can show a change; how many it takes depends on the noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MIN_RUNS = 6  # with fewer, no change short of a doubling could be told from noise
MIN_SIDE = 2  # runs on either side of a change: one alone may be an outlier
NEIGHBOURS = 7  # runs whose median is what a run is held against, itself among them
REACH = 4.0  # deviations from its neighbours beyond which a run is an outlier
PENALTY = 3.0  # of a cut, in variances times the logarithm of the number of runs
ALPHA = 0.005  # chance of a false alarm in a series of nothing but normal noise
ROW_OF_OUTLIERS = 0.001  # the shorter side of a change may be a row of outliers with at most this chance
TO_SIGMA = 1.4826  # a normal distribution's deviation over its median absolute deviation


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """A change of level: `start` is the place of the first figure of the new level."""

    start: int
    before: float
    after: float

    @property
    def change(self) -> float:
        """The change as a fraction of the level before."""
        return self.after / self.before - 1


def change_points(
    values: Sequence[float], *, threshold: float = 0.03, errors: Sequence[float] | None = None
) -> tuple[Shift, ...]:
    """The lasting changes of a series of positive figures, in order of time.

    `errors` are the figures' own relative standard errors, where they are known (from several launches of a run): the
    noise is then never taken to be less than they say.

    >>> [shift.start for shift in change_points([10, 10.1, 9.9, 10, 10.1, 12, 12.1, 11.9, 12])]
    [5]
    """
    if len(values) < MIN_RUNS:
        return ()
    logs = np.log(np.asarray(values, dtype=np.float64))
    own = np.zeros(len(logs)) if errors is None else np.asarray(errors, dtype=np.float64)
    # Figures that never vary, such as bytes, are given a little noise: the clipping below must not undo their changes.
    sigma = max(_deviation(np.diff(logs)) / math.sqrt(2), float(np.median(own)), math.log1p(threshold) / REACH)
    clipped = _clipped(logs, REACH * sigma)
    cuts = _cuts(clipped / sigma)
    while cuts:
        margins = [_margin(logs, clipped, own, sides, threshold) for sides in _sides(cuts, len(logs))]
        weakest = int(np.argmin(margins))
        if margins[weakest] >= 1:
            break
        del cuts[weakest]
    return tuple(
        Shift(start=cut, before=_level(logs[start:cut]), after=_level(logs[cut:end]))
        for start, cut, end in _sides(cuts, len(logs))
    )


def _clipped(logs: Floats, reach: float) -> Floats:
    """The series with outliers drawn in to `reach` from the median of their neighbours.

    They are not removed: at the end of a series, a row of them is how a new level begins.
    """
    windows = np.lib.stride_tricks.sliding_window_view(logs, min(NEIGHBOURS, len(logs)))
    # At both ends the neighbours are those of the first and the last full window.
    places = np.clip(np.arange(len(logs)) - NEIGHBOURS // 2, 0, len(windows) - 1)
    middle = np.median(windows, axis=1)[places]
    return np.clip(logs, middle - reach, middle + reach)


def _cuts(series: Floats) -> list[int]:
    """The best cuts of a series whose noise has unit variance, each at the first place of its new level."""
    from ruptures import KernelCPD

    search = KernelCPD(kernel="linear", min_size=MIN_SIDE).fit(series - np.median(series))
    return [int(cut) for cut in search.predict(pen=PENALTY * math.log(len(series)))[:-1]]


def _sides(cuts: Sequence[int], count: int) -> list[tuple[int, int, int]]:
    """Each cut with where the stretch before it starts and the one after it ends."""
    ends = [0, *cuts, count]
    return list(zip(ends[:-2], cuts, ends[2:], strict=True))


def _margin(logs: Floats, clipped: Floats, own: Floats, sides: tuple[int, int, int], threshold: float) -> float:
    """How far a cut is above the least that is asked of it, as a ratio: below one, it does not stand."""
    from scipy.special import stdtrit

    start, cut, end = sides
    left, right = clipped[start:cut], clipped[cut:end]
    size = abs(float(np.median(logs[cut:end]) - np.median(logs[start:cut]))) / math.log1p(threshold)
    count, df = end - start, end - start - 2
    squares = float(((left - left.mean()) ** 2).sum() + ((right - right.mean()) ** 2).sum())
    spread = max(squares / df, float((own[start:end] ** 2).mean()))
    error = math.sqrt(spread * (1 / len(left) + 1 / len(right)))
    least = float(stdtrit(df, 1 - ALPHA / (2 * max(1, count - 2 * MIN_SIDE + 1)))) * error
    sure = abs(float(right.mean() - left.mean())) / least if least else math.inf
    return min(size, sure, 1.0 if _longer_than_outliers(logs, clipped, sides) else 0.0)


def _longer_than_outliers(logs: Floats, clipped: Floats, sides: tuple[int, int, int]) -> bool:
    """Whether the shorter side of a cut is more than outliers that happen to follow one another.

    How often outliers occur is counted in the rest of the series, on the side to which the shorter stretch deviates.
    """
    start, cut, end = sides
    first, last = (start, cut) if cut - start < end - cut else (cut, end)
    short = np.zeros(len(logs), dtype=bool)
    short[first:last] = True
    above = bool(np.median(logs[first:last]) > np.median(logs[start:end][~short[start:end]]))
    others = ~short & ((logs > clipped) if above else (logs < clipped))
    # Half an outlier more than was seen: of a short series nobody knows how often they occur.
    rate = (float(others.sum()) + 0.5) / (len(logs) - (last - first) + 1)
    return rate ** (last - first) < ROW_OF_OUTLIERS


def _deviation(differences: Floats) -> float:
    """The standard deviation, deaf to outliers."""
    return TO_SIGMA * float(np.median(np.abs(differences - np.median(differences))))


def _level(logs: Floats) -> float:
    return math.exp(float(np.median(logs)))
