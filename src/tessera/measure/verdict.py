"""What an interval of a ratio says about a change that matters."""

from __future__ import annotations

import math
from typing import Literal

from tessera.measure.statistics import Interval

Verdict = Literal["slower", "faster", "same", "unresolved"]


def verdict_of(ratio: Interval, threshold: float) -> Verdict:
    """A change is called when the interval excludes none and the ratio is beyond the threshold.

    It is `same` when the whole interval lies within the threshold; whatever else is `unresolved`.

    >>> verdict_of(Interval(1.02, 1.005, 1.035), 0.01)
    'slower'
    >>> verdict_of(Interval(1.02, 0.995, 1.045), 0.01)
    'unresolved'
    >>> verdict_of(Interval(1.002, 0.998, 1.006), 0.01)
    'same'
    """
    beyond = 1 + threshold
    if ratio.low > 1 and ratio.value > beyond:
        return "slower"
    if ratio.high < 1 and ratio.value < 1 / beyond:
        return "faster"
    return "same" if ratio.high <= beyond and ratio.low >= 1 / beyond else "unresolved"


def smallest_effect(ratio: Interval, threshold: float) -> float:
    """The smallest change that an interval of this width would have shown, as a fraction."""
    if not ratio.low > 0:
        return math.inf
    return max(threshold, ratio.high / ratio.value - 1, ratio.value / ratio.low - 1)
