"""Two interpreters or environments against each other: short bursts in turns, relaunched many times.

Within a launch the two sides take turns on the same core, so that the machine's mood hits both. Between launches
the memory lies elsewhere, which alone makes identical code differ by a per cent: so each pair of launches gives one
ratio, and the spread of those ratios is what a verdict stands on.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable
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
BURSTS = 3  # pairs per launch
LOW = 0.25  # the quantile that stands for a burst: interruptions only ever make a call longer
LEAST_PAIRS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternated:
    """One log ratio (B over A) per pair of launches, and the raw values of each launch's bursts."""

    log_ratios: tuple[float, ...]
    a: tuple[tuple[float, ...], ...]
    b: tuple[tuple[float, ...], ...]
    stopped_by: str

    def ratio(self, confidence: float = 0.95) -> Interval:
        """How many times longer B takes than A."""
        found = trimmed_interval(self.log_ratios, confidence)
        return Interval(*(float(np.exp(v)) for v in (found.value, found.low, found.high)))


class Alternator:
    """Keeps the two sides' workers alive over any number of comparisons."""

    def __init__(self, a: LaunchConfig, b: LaunchConfig, seed: int | None = None) -> None:
        self._configs, self._random = (a, b), random.Random(seed)

    def __enter__(self) -> Alternator:
        with ExitStack() as stack:
            ours = stack.enter_context(TemporaryDirectory(prefix="tessera-"))
            os.symlink(Path(tessera.__file__).parent, Path(ours) / "tessera")
            self._sides = tuple(stack.enter_context(Workers(_reaching(c, ours))) for c in self._configs)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def compare(
        self,
        make: str,
        args_a: tuple[Any, ...] = (),
        args_b: tuple[Any, ...] = (),
        *,
        budget: float = 5.0,
        target: float = 0.0025,
        progress: Callable[[int], None] | None = None,
    ) -> Alternated:
        """Alternate `make(*args_a)()` and `make(*args_b)()` until the ratio is known to `target` or time is up."""
        deadline = time.monotonic() + budget
        ratios: list[float] = []
        raw: tuple[list[tuple[float, ...]], list[tuple[float, ...]]] = ([], [])
        stopped_by, longest = "budget", 0.0
        while len(ratios) < LEAST_PAIRS or time.monotonic() + longest < deadline:
            began = time.monotonic()
            logs, values = self._pair(make, (args_a, args_b))
            longest = max(longest, time.monotonic() - began)
            ratios.append(float(np.median(logs)))
            for kept, new in zip(raw, values, strict=True):
                kept.append(tuple(new))
            if progress:
                progress(len(ratios))
            if len(ratios) >= 2 * LEAST_PAIRS:
                found = trimmed_interval(ratios)
                if (found.high - found.low) / 2 <= target:
                    stopped_by = "target"
                    break
        return Alternated(log_ratios=tuple(ratios), a=tuple(raw[0]), b=tuple(raw[1]), stopped_by=stopped_by)

    def _pair(
        self, make: str, args: tuple[tuple[Any, ...], ...]
    ) -> tuple[list[float], tuple[list[float], ...]]:
        """One launch of both sides: the log ratio of each pair of bursts, and all values."""
        order = [0, 1]
        self._random.shuffle(order)
        for side in order:
            self._sides[side].run("tessera.launch.bursts:relaunch", make, args[side])
        logs: list[float] = []
        values: tuple[list[float], ...] = ([], [])
        for _ in range(BURSTS):
            self._random.shuffle(order)
            low = [0.0, 0.0]
            for side in order:
                (found,) = self._sides[side].run("tessera.launch.bursts:burst", BURST)
                low[side] = float(np.quantile(found, LOW))
                values[side].extend(found)
            logs.append(float(np.log(low[1] / low[0])))
        for side in order:
            self._sides[side].run("tessera.launch.bursts:end")
        return logs, values


def _reaching(config: LaunchConfig, ours: str) -> LaunchConfig:
    """Let another interpreter import this very package, and nothing else of this one's."""
    if config.python == sys.executable:
        return config
    paths = [ours, config.env.get("PYTHONPATH", "")]
    return replace(config, env={**config.env, "PYTHONPATH": os.pathsep.join(p for p in paths if p)})
