"""What an interval of a ratio says about a change that matters."""

from __future__ import annotations

from typing import Literal

from tessera.measure.statistics import Interval

Verdict = Literal["slower", "faster", "same", "unresolved"]


def verdict_of(ratio: Interval, threshold: float) -> Verdict:
    """A change is called when the whole interval lies beyond the threshold, `same` when it lies within it.

    >>> verdict_of(Interval(1.02, 1.015, 1.025), 0.01)
    'slower'
    >>> verdict_of(Interval(1.02, 1.005, 1.035), 0.01)
    'unresolved'
    """
    if ratio.low > 1 + threshold:
        return "slower"
    if ratio.high < 1 / (1 + threshold):
        return "faster"
    if ratio.high <= 1 + threshold and ratio.low >= 1 / (1 + threshold):
        return "same"
    return "unresolved"


def smallest_effect(ratio: Interval, threshold: float) -> float:
    """The smallest change that an interval of this width would have shown, as a fraction."""
    return threshold + max(ratio.high / ratio.value, ratio.value / ratio.low) - 1
