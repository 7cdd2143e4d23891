"""Interleaved timing of variants: machine drift affects all variants, and ratios are taken within a round."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

from tessera.measure.interleave import estimate_paired_ratio
from tessera.measure.sampler import disable_garbage_collection

SecondsByVariant = Mapping[str, tuple[float, ...]]
PAUSE_SECONDS = (
    0.05  # seconds between two calls, so that loads in advance by one variant do not disturb the next variant
)


def time_interleaved(
    variants: Mapping[str, Callable[[], object]],
    rounds: int,
    before: Mapping[str, Callable[[], object]] | None = None,
) -> dict[str, tuple[float, ...]]:
    """Return the seconds of each variant in each round; the order is random, and an untimed warm-up round comes first.

    `before` holds functions that are called, untimed, before every call of a variant, for example to drop caches.
    """
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    with disable_garbage_collection():
        for number in range(rounds + 1):
            for name in random.sample(list(variants), len(variants)):
                if before and name in before:
                    before[name]()
                time.sleep(PAUSE_SECONDS)
                start = time.perf_counter()
                variants[name]()
                if number:
                    seconds[name].append(time.perf_counter() - start)
    return {name: tuple(values) for name, values in seconds.items()}


def compute_ratio(values: SecondsByVariant, name: str, base: str) -> dict[str, float]:
    """Return the time of variant `name` relative to variant `base`: median, lowest and highest over the rounds."""
    median = estimate_paired_ratio(values[name], values[base])
    rounds = sorted(a / b for a, b in zip(values[name], values[base], strict=True))
    return {"ratio": median.value, "low": rounds[0], "high": rounds[-1]}


def format_ratio(ratio: Mapping[str, float]) -> str:
    """Format a ratio with its range over the rounds."""
    return f"{ratio['ratio']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})"


def compute_medians(values: SecondsByVariant) -> dict[str, float]:
    return {name: statistics.median(seconds) for name, seconds in values.items()}


def compare_with_target(value: float, target: float, *, least: bool = False) -> str:
    """Return the target as text, and whether it was missed; the target is a maximum, or with `least` a minimum."""
    reached = value >= target if least else value <= target
    return f"target {'≥' if least else '≤'} {target:g}{'' if reached else ': NOT REACHED'}"


def build_summary(values: SecondsByVariant, **ratios: Any) -> dict[str, Any]:
    """Return the results of one part of the benchmark: the ratios, and the seconds of each variant."""
    return {"seconds": {name: list(seconds) for name, seconds in values.items()}, **ratios}
