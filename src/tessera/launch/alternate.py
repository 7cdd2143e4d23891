"""Two interpreters or environments against each other: short bursts in turns, relaunched many times.

Within a launch the two sides take turns on the same core, so that the machine's mood hits both. Between launches
the memory lies elsewhere, and between interpreters everything does, which alone makes identical code differ by a
per cent: so each side has several interpreters, each forks many launches, and a verdict stands on the spread of
the launches' ratios and on how far apart the interpreters lie.
"""

from __future__ import annotations

import math
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import tessera
from tessera.launch.config import LaunchConfig
from tessera.launch.workers import Workers
from tessera.measure.statistics import Interval, trimmed_interval

BURST = 0.01  # seconds
BURSTS = 4  # of each side in a launch
LOW = 0.1  # the quantile that stands for a launch: interruptions only ever make a call longer
INTERPRETERS = 3  # of each side
LEAST_LAUNCHES = 2 * INTERPRETERS
# Identical interpreters were seen to lie 0.3 to 0.5 % apart. Three of a side say too little about that by
# themselves, so what they say is moderated with this, as if it had been seen in ten more.
APART, APART_WEIGHT = 0.004, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternated:
    """The log ratio (B over A) of every pair of launches, by pair of interpreters, and the launches' raw values."""

    log_ratios: tuple[tuple[float, ...], ...]
    a: tuple[tuple[float, ...], ...]
    b: tuple[tuple[float, ...], ...]
    stopped_by: str

    def ratio(self, confidence: float = 0.95) -> Interval:
        """How many times longer B takes than A."""
        found = grouped_interval(self.log_ratios, confidence)
        return Interval(*(math.exp(v) for v in (found.value, found.low, found.high)))


def grouped_interval(groups: Sequence[Sequence[float]], confidence: float = 0.95) -> Interval:
    """The middle of values that come in groups, each of which may lie off the middle as a whole."""
    from scipy.special import stdtrit

    found = [trimmed_interval(group, 0.6827) for group in groups if len(group) >= 2]
    middles = np.array([one.value for one in found])
    within = float(np.mean([((one.high - one.low) / 2) ** 2 for one in found]))
    seen = float(middles.var(ddof=1)) if len(found) > 1 else 0.0
    freedom = APART_WEIGHT + len(found) - 1
    variance = (APART_WEIGHT * (APART**2 + within) + (len(found) - 1) * seen) / freedom
    middle = float(middles.mean())
    reach = float(stdtrit(freedom, (1 + confidence) / 2)) * math.sqrt(variance / len(found))
    return Interval(middle, middle - reach, middle + reach)


class Alternator:
    """Keeps the interpreters of both sides alive over any number of comparisons."""

    def __init__(self, a: LaunchConfig, b: LaunchConfig, seed: int | None = None) -> None:
        self._configs, self._random = (a, b), random.Random(seed)

    def __enter__(self) -> Alternator:
        with ExitStack() as stack:
            ours = stack.enter_context(TemporaryDirectory(prefix="tessera-"))
            os.symlink(Path(tessera.__file__).parent, Path(ours) / "tessera")
            self._pairs = [
                tuple(stack.enter_context(Workers(_reaching(config, ours))) for config in self._configs)
                for _ in range(INTERPRETERS)
            ]
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def prepare(self, make: str) -> None:
        """Let all interpreters import what the callable needs, at the same time; no comparison is charged for it."""
        workers = [side for pair in self._pairs for side in pair]
        with ThreadPoolExecutor(len(workers)) as pool:
            list(pool.map(lambda w: w.run("tessera.launch.bursts:preload", make), workers))

    def compare(
        self,
        make: str,
        args_a: tuple[Any, ...] = (),
        args_b: tuple[Any, ...] = (),
        *,
        budget: float = 5.0,
        target: float = 0.0035,
        progress: Callable[[int], None] | None = None,
    ) -> Alternated:
        """Alternate `make(*args_a)()` and `make(*args_b)()` until the ratio is known to `target` or time is up."""
        self.prepare(make)
        deadline = time.monotonic() + budget
        ratios: list[list[float]] = [[] for _ in self._pairs]
        raw: tuple[list[tuple[float, ...]], list[tuple[float, ...]]] = ([], [])
        stopped_by, launches, began = "budget", 0, time.monotonic()
        while launches < LEAST_LAUNCHES or time.monotonic() + (time.monotonic() - began) / launches < deadline:
            group = launches % len(self._pairs)
            values = self._launch(self._pairs[group], make, (args_a, args_b))
            low = [float(np.quantile(side, LOW)) for side in values]
            ratios[group].append(math.log(low[1] / low[0]))
            for kept, new in zip(raw, values, strict=True):
                kept.append(tuple(new))
            launches += 1
            if progress:
                progress(launches)
            if launches >= 2 * LEAST_LAUNCHES:
                found = grouped_interval(ratios)
                if (found.high - found.low) / 2 <= target:
                    stopped_by = "target"
                    break
        groups = tuple(tuple(group) for group in ratios)
        return Alternated(log_ratios=groups, a=tuple(raw[0]), b=tuple(raw[1]), stopped_by=stopped_by)

    def _launch(
        self, pair: tuple[Workers, ...], make: str, args: tuple[tuple[Any, ...], ...]
    ) -> tuple[list[float], list[float]]:
        """One launch of both sides: all values of each side's bursts."""
        order = [0, 1]
        self._random.shuffle(order)
        for side in order:
            pair[side].run("tessera.launch.bursts:relaunch", make, args[side])
        values: tuple[list[float], list[float]] = ([], [])
        for _ in range(BURSTS):
            self._random.shuffle(order)
            for side in order:
                (found,) = pair[side].run("tessera.launch.bursts:burst", BURST)
                values[side].extend(found)
        for side in order:
            pair[side].run("tessera.launch.bursts:end")
        return values


def _reaching(config: LaunchConfig, ours: str) -> LaunchConfig:
    """Let another interpreter import this very package, and nothing else of this one's."""
    if config.python == sys.executable:
        return config
    paths = [ours, config.env.get("PYTHONPATH", "")]
    return replace(config, env={**config.env, "PYTHONPATH": os.pathsep.join(p for p in paths if p)})
