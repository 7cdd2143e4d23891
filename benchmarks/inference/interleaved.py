"""Interleaved measurements of several variants (sides), in a new random order every round, and their ratios."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping
from typing import Any

from tessera.measure.interleave import estimate_paired_ratio


def measure_interleaved(
    sides: Mapping[str, Callable[[], float]], rounds: int, say: Callable[[str], None]
) -> dict[str, list[float]]:
    """Return the rates of each side, one per round; the first round is a warm-up and not returned."""
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        say(f"round {number} of {rounds}")
        for name in random.sample(list(sides), len(sides)):
            rate = sides[name]()
            if number:
                rates[name].append(rate)
    return rates


def compute_ratios(rates: Mapping[str, list[float]], ours: str) -> dict[str, dict[str, float]]:
    """Return the ratio of the rate of side `ours` to the rate of every other side, with its confidence interval."""
    ratios = {}
    for name, values in rates.items():
        if name != ours:
            ratio = estimate_paired_ratio(tuple(rates[ours]), tuple(values))
            ratios[name] = {"ratio": ratio.value, "low": ratio.low, "high": ratio.high}
    return ratios


def compute_medians(rates: Mapping[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in rates.items()}


def format_ratio(ratio: Mapping[str, Any]) -> str:
    return f"{ratio['ratio']:.3f}x ({ratio['low']:.3f} to {ratio['high']:.3f})"
