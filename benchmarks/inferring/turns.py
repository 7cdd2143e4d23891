"""Several sides in turns, in random order anew every round: rates, and the ratio of one to each of the others."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping
from typing import Any

from tessera.measure.interleave import paired_ratio


def in_turns(
    sides: Mapping[str, Callable[[], float]], rounds: int, say: Callable[[str], None]
) -> dict[str, list[float]]:
    """The rate of every side, round by round; one burst of each beforehand is not counted."""
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        say(f"round {number} of {rounds}")
        for name in random.sample(list(sides), len(sides)):
            rate = sides[name]()
            if number:
                rates[name].append(rate)
    return rates


def ratios(rates: Mapping[str, list[float]], ours: str) -> dict[str, dict[str, float]]:
    """How many times the rate of each other side ours is, with its interval."""
    found = {}
    for name, values in rates.items():
        if name != ours:
            ratio = paired_ratio(tuple(rates[ours]), tuple(values))
            found[name] = {"ratio": ratio.value, "low": ratio.low, "high": ratio.high}
    return found


def medians(rates: Mapping[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in rates.items()}


def said(ratio: Mapping[str, Any]) -> str:
    return f"{ratio['ratio']:.3f}x ({ratio['low']:.3f} to {ratio['high']:.3f})"
