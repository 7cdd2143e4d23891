"""Two interpreters or environments against each other: short bursts in turns, relaunched many times.

Within a launch the two sides take turns on the same core, so that the machine's mood hits both. Between launches
the memory lies elsewhere, and between interpreters everything does, which alone makes identical code differ by a
per cent: so each side has several interpreters, each forks many launches, and a verdict stands on the spread of
the launches' ratios and on how far apart the interpreters lie.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from tessera.launch.config import LaunchConfig
from tessera.launch.workers import Workers
from tessera.measure.statistics import Interval, trimmed_interval

BURST = 0.01  # seconds
BURSTS = 4  # of each side in a launch, at least
MOST_BURSTS = 8
ENOUGH_CALLS = 24  # of each side in a launch: fewer give no low quantile
LOW = 0.05  # the quantile that stands for a launch: interruptions only ever make a call longer
INTERPRETERS = 8  # of each side: those that happen to lie apart are then trimmed away whole
FEW_INTERPRETERS = 3  # for a first look
LEAST_LAUNCHES = 10
TRIM = 0.25  # launches cut off at either end: on a shared host some are hit as a whole
APART = 0.008  # pairs of identical interpreters were seen to lie 0.5 to 0.8 % apart, whatever their launches say
CONFIDENCE = 0.98  # of a verdict: with less, identical code is called changed more often than once in 25 trials


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternated:
    """The log ratio (B over A) of every pair of launches, and the raw values of each side's launches."""

    log_ratios: tuple[float, ...]
    a: tuple[tuple[float, ...], ...]
    b: tuple[tuple[float, ...], ...]
    stopped_by: str
    interpreters: int = INTERPRETERS

    def ratio(self, confidence: float = CONFIDENCE) -> Interval:
        """How many times longer B takes than A."""
        found = launches_interval(self.log_ratios, confidence, self.interpreters)
        return Interval(*(math.exp(v) for v in (found.value, found.low, found.high)))


def launches_interval(
    log_ratios: Sequence[float], confidence: float = CONFIDENCE, interpreters: int = INTERPRETERS
) -> Interval:
    """The middle of the launches' ratios; its interval adds that the few interpreters behind them lie apart."""
    found = trimmed_interval(log_ratios, confidence, TRIM)
    apart = NormalDist().inv_cdf((1 + confidence) / 2) * APART / math.sqrt(interpreters)
    reach = math.hypot((found.high - found.low) / 2, apart)
    return Interval(found.value, found.value - reach, found.value + reach)


class Alternator:
    """Keeps the interpreters of both sides alive over any number of comparisons."""

    def __init__(
        self, a: LaunchConfig, b: LaunchConfig, seed: int | None = None, interpreters: int = INTERPRETERS
    ) -> None:
        self._configs, self._random, self._count = (a, b), random.Random(seed), interpreters

    def __enter__(self) -> Alternator:
        self._pairs = [tuple(Workers(config) for config in self._configs) for _ in range(self._count)]
        crews = [side for pair in self._pairs for side in pair]
        with ExitStack() as stack, ThreadPoolExecutor(len(crews)) as pool:
            started = [pool.submit(crew.__enter__) for crew in crews]
            for crew, future in zip(crews, started, strict=True):
                if future.exception() is None:
                    stack.push(crew)
            for future in started:
                future.result()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def prepare(self, make: str, before: str = "", args: tuple[Any, ...] = ()) -> None:
        """Let all interpreters import what the callable needs, at the same time; no comparison is charged for it.

        Where importing the callable's module is not enough, `before(*args)` imports the rest.
        """
        workers = [side for pair in self._pairs for side in pair]
        with ThreadPoolExecutor(len(workers)) as pool:
            list(pool.map(lambda w: w.run("tessera.launch.bursts:preload", make, before, args), workers))

    def environments(self) -> tuple[dict[str, Any], ...]:
        """What each side sees of its machine, libraries and settings."""
        return tuple(side.run("tessera.launch.bursts:describe")[0] for side in self._pairs[0])

    def attempt(self, make: str, args: tuple[Any, ...]) -> None:
        """Let one interpreter of each side make the callable: an error of either is raised here."""
        for side in self._pairs[0]:
            side.run("tessera.launch.bursts:attempt", make, args)

    def compare(
        self,
        make: str,
        args_a: tuple[Any, ...] = (),
        args_b: tuple[Any, ...] = (),
        *,
        budget: float = 5.0,
        target: float = 0.008,
        confidence: float = CONFIDENCE,
    ) -> Alternated:
        """Alternate `make(*args_a)()` and `make(*args_b)()` until the ratio is known to `target` or time is up.

        What looks like a change goes on until it is one with the `confidence` that is wanted, too.
        """
        self.prepare(make)
        deadline = time.monotonic() + budget
        ratios: list[float] = []
        raw: tuple[list[tuple[float, ...]], list[tuple[float, ...]]] = ([], [])
        stopped_by, began = "budget", time.monotonic()
        while len(ratios) < LEAST_LAUNCHES or time.monotonic() + (time.monotonic() - began) / len(ratios) < deadline:
            pair = self._pairs[len(ratios) % len(self._pairs)]
            values = self._launch(pair, make, (args_a, args_b))
            low = [float(np.quantile(side, LOW)) for side in values]
            ratios.append(math.log(low[1] / low[0]))
            for kept, new in zip(raw, values, strict=True):
                kept.append(tuple(new))
            if len(ratios) >= 2 * LEAST_LAUNCHES:
                own, held = (launches_interval(ratios, one, self._count) for one in (CONFIDENCE, confidence))
                if (own.high - own.low) / 2 <= target and (0 in own) == (0 in held):
                    stopped_by = "target"
                    break
        return Alternated(
            log_ratios=tuple(ratios),
            a=tuple(raw[0]),
            b=tuple(raw[1]),
            stopped_by=stopped_by,
            interpreters=self._count,
        )

    def _launch(
        self, pair: tuple[Workers, ...], make: str, args: tuple[tuple[Any, ...], ...]
    ) -> tuple[list[float], list[float]]:
        """One launch of both sides: all values of each side's bursts."""
        order = [0, 1]
        self._random.shuffle(order)
        for side in order:
            pair[side].run("tessera.launch.bursts:relaunch", make, args[side])
        values: tuple[list[float], list[float]] = ([], [])
        for number in range(MOST_BURSTS):
            if number >= BURSTS and min(map(len, values)) >= ENOUGH_CALLS:
                break
            self._random.shuffle(order)
            for side in order:
                (found,) = pair[side].run("tessera.launch.bursts:burst", BURST)
                values[side].extend(found)
        for side in order:
            pair[side].run("tessera.launch.bursts:end")
        return values
