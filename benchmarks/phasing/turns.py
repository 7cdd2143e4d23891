"""Several ways to do the same, timed in turns: the machine's drift hits all alike, and ratios are of the same round."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

from tessera.measure.interleave import paired_ratio
from tessera.measure.sampler import no_garbage_collection

Values = Mapping[str, tuple[float, ...]]
PAUSE = 0.05  # seconds between two calls: what one of them still has loaded ahead does not disturb the next


def in_turns(
    ways: Mapping[str, Callable[[], object]],
    rounds: int,
    before: Mapping[str, Callable[[], object]] | None = None,
) -> dict[str, tuple[float, ...]]:
    """Seconds of each way, round by round, in a new order each time; the first call of each is not counted.

    `before` is called, untimed, ahead of a way's every call: to empty caches.
    """
    found: dict[str, list[float]] = {name: [] for name in ways}
    with no_garbage_collection():
        for number in range(rounds + 1):
            for name in random.sample(list(ways), len(ways)):
                if before and name in before:
                    before[name]()
                time.sleep(PAUSE)
                start = time.perf_counter()
                ways[name]()
                if number:
                    found[name].append(time.perf_counter() - start)
    return {name: tuple(values) for name, values in found.items()}


def ratio(values: Values, name: str, base: str) -> dict[str, float]:
    """How many times as long a way takes as another: the middle one of the rounds, its interval, and all between."""
    of = paired_ratio(values[name], values[base])
    rounds = sorted(a / b for a, b in zip(values[name], values[base], strict=True))
    return {"ratio": of.value, "low": rounds[0], "high": rounds[-1]}


def said(found: Mapping[str, float]) -> str:
    """A ratio with how far the rounds were apart."""
    return f"{found['ratio']:.3f} ({found['low']:.3f} to {found['high']:.3f})"


def medians(values: Values) -> dict[str, float]:
    return {name: statistics.median(taken) for name, taken in values.items()}


def verdict(value: float, target: float, *, least: bool = False) -> str:
    """Whether a figure keeps what was promised: at most, or at least."""
    kept = value >= target if least else value <= target
    return f"target {'≥' if least else '≤'} {target:g}{'' if kept else ': NOT REACHED'}"


def summary(values: Values, **ratios: Any) -> dict[str, Any]:
    """What goes into the results of a part."""
    return {"seconds": {name: list(taken) for name, taken in values.items()}, **ratios}
