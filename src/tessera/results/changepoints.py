"""Where a series of figures changed its level for good, and by how much.

Figures of one case over many runs are noisy and hold outliers, so a change is called in three steps. Runs far off their
neighbours (Hampel) are left out, unless so many follow one another that chance does not explain it: then they are drawn
in to a few deviations. The logarithms are cut into stretches of one level with the least squared error, each cut paying
a penalty that grows with the noise (PELT, from `ruptures`). A cut stays only when the levels beside it differ by more
than the threshold, and by more than the best cut of mere noise would (a t-test, corrected for having chosen the place).
Two runs are the least that can show a change; how many it takes depends on the noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MIN_RUNS = 8  # with fewer, hardly any change could be told from noise
MIN_SIDE = 2  # runs on either side of a change: one alone may be an outlier
NEIGHBOURS = 7  # runs whose median is what a run is held against, itself among them
REACH = 3.5  # deviations from its neighbours beyond which a run is an outlier
PENALTY = 3.0  # of a cut, in variances times the logarithm of the number of runs
ALPHA = 0.01  # chance of a false alarm in a series of nothing but normal noise
CHANCE = 0.001  # of a row of outliers, below which it is taken for a change of level
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
    figures = np.asarray(values, dtype=np.float64)
    logs = np.log(figures)
    own = np.zeros(len(logs)) if errors is None else np.asarray(errors, dtype=np.float64)
    # Figures that never vary, such as bytes, are given a little noise: the clipping must not undo their changes.
    sigma = max(_deviation(np.diff(logs)) / math.sqrt(2), float(np.median(own)), math.log1p(threshold) / REACH)
    clipped = _clipped(logs, REACH * sigma)
    kept = np.flatnonzero(~_outliers(logs, clipped))
    if len(kept) <= 2 * MIN_SIDE:
        return ()
    figures, logs, clipped, own = figures[kept], logs[kept], clipped[kept], own[kept]
    cuts = _cuts(clipped / sigma)
    while cuts:  # the weakest goes first: without it, those beside it may stand
        margins = [
            min(_distance(logs[a:b], logs[b:c]) / math.log1p(threshold), _surety(clipped[a:b], clipped[b:c], own[a:c]))
            for a, b, c in _sides(cuts, len(kept))
        ]
        weakest = int(np.argmin(margins))
        if margins[weakest] >= 1:
            break
        del cuts[weakest]
    return tuple(
        Shift(start=int(kept[cut]), before=_level(figures[start:cut]), after=_level(figures[cut:end]))
        for start, cut, end in _sides(cuts, len(kept))
    )


def _clipped(logs: Floats, reach: float) -> Floats:
    """The series with what is further than `reach` from the median of its neighbours drawn in to it."""
    windows = np.lib.stride_tricks.sliding_window_view(logs, min(NEIGHBOURS, len(logs)))
    # At both ends the neighbours are those of the first and the last full window.
    places = np.clip(np.arange(len(logs)) - NEIGHBOURS // 2, 0, len(windows) - 1)
    middle = np.median(windows, axis=1)[places]
    return np.clip(logs, middle - reach, middle + reach)


def _outliers(logs: Floats, clipped: Floats) -> NDArray[np.bool_]:
    """Which runs are mere outliers: rows of clipped ones, as long as chance may make them.

    How often outliers occur is counted in the rest of this very series. At the end of a series a row is how a new level
    begins, and there is but one end; elsewhere the row may have been anywhere.
    """
    found = np.zeros(len(logs), dtype=bool)
    for side in (logs > clipped, logs < clipped):
        edges = np.flatnonzero(np.diff(side, prepend=False, append=False))
        for first, last in zip(edges[::2], edges[1::2], strict=True):
            others, runs = int(side.sum() - (last - first)), int(last - first)
            # Half an outlier more than was seen: of a short series nobody knows how often they occur.
            rate = (others + 0.5) / (len(logs) - runs + 1)
            places = 1 if first == 0 or last == len(logs) else len(logs)
            found[first:last] = places * rate**runs >= CHANCE
    return found


def _cuts(series: Floats) -> list[int]:
    """The best cuts of a series whose noise has unit variance, each at the first place of its new level."""
    from ruptures import KernelCPD

    search = KernelCPD(kernel="linear", min_size=MIN_SIDE).fit(series - np.median(series))
    return [int(cut) for cut in search.predict(pen=PENALTY * math.log(len(series)))[:-1]]


def _sides(cuts: Sequence[int], count: int) -> list[tuple[int, int, int]]:
    """Each cut between the start of the stretch before it and the end of the one after it."""
    ends = [0, *cuts, count]
    return list(zip(ends[:-2], cuts, ends[2:], strict=True))


def _distance(left: Floats, right: Floats) -> float:
    return abs(float(np.median(right) - np.median(left)))


def _surety(left: Floats, right: Floats, errors: Floats) -> float:
    """How far apart two levels are, in units of what the best of all cuts of mere noise hardly ever reaches."""
    from scipy.special import stdtrit

    count = len(left) + len(right)
    squares = float(((left - left.mean()) ** 2).sum() + ((right - right.mean()) ** 2).sum())
    spread = max(squares / (count - 2), float((errors**2).mean()))
    places = max(1, count - 2 * MIN_SIDE + 1)
    largest = float(stdtrit(count - 2, 1 - ALPHA / 2 / places)) * math.sqrt(spread * (1 / len(left) + 1 / len(right)))
    return abs(float(right.mean() - left.mean())) / largest if largest else math.inf


def _deviation(differences: Floats) -> float:
    """The standard deviation, deaf to outliers."""
    return TO_SIGMA * float(np.median(np.abs(differences - np.median(differences))))


def _level(figures: Floats) -> float:
    return float(np.median(figures))
