"""Compare two interpreters or environments by alternating between them in short bursts, over many launches.

Within a launch the two sides alternate on the same core, so that machine noise affects both. Buffer addresses differ
between launches, and all addresses differ between interpreters. This alone changes the time of identical code by about
1 %. Each side therefore has several interpreters, each interpreter forks many launches, and the confidence interval of
the ratio includes the spread of the launches' ratios and the known spread between interpreters.
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
from typing import Any, Protocol

import numpy as np

from tessera.ab.worker import PackageOrigin
from tessera.launch.config import LaunchConfig
from tessera.launch.workers import Workers
from tessera.measure.statistics import Estimate, estimate_trimmed_mean
from tessera.measure.stopping import StoppingRule, sample_until

BURST_SECONDS = 0.01  # length of a burst in seconds
MIN_BURSTS = 4  # minimum number of bursts of each side in a launch
MAX_BURSTS = 8  # maximum number of bursts of each side in a launch
MIN_CALLS = 24  # minimum number of calls of each side in a launch, required for LOW_QUANTILE
LOW_QUANTILE = 0.05  # quantile of call times that represents a launch: interruptions only make calls longer
INTERPRETERS_PER_SIDE = 8  # number of interpreters of each side; trimming removes outliers
QUICK_INTERPRETERS_PER_SIDE = 3  # number of interpreters of each side with --quick
MIN_LAUNCHES = 10  # minimum number of pairs of launches in a comparison
TRIMMED_SHARE = 0.25  # share of launches trimmed at either end: on a shared host, whole launches are disturbed
INTERPRETER_SPREAD = 0.008  # standard deviation of the ratio of two identical interpreters (measured: 0.5 to 0.8 %)
VERDICT_CONFIDENCE = 0.98  # confidence of a verdict; a lower one gives more than one false alarm in 25 A/A trials


class CallableHooks(Protocol):
    """The hooks of the feature whose cases are compared, each a `module:function` string (see `suites.features`)."""

    @property
    def callable(self) -> str:
        """Hook `callable(case, check)`: builds the callable to time."""

    @property
    def preload(self) -> str:
        """Hook `preload(case)`: imports the modules that the case requires."""

    @property
    def device(self) -> str:
        """Hook `device(case)`: returns name and model of the case's accelerator; empty for the CPU."""

    @property
    def version(self) -> str:
        """Hook `version(case)`: returns the version of the case's benchmark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ABSettings:
    """The two sides of a run, the number of interpreters per side, and the hooks of the compared feature."""

    a: LaunchConfig
    b: LaunchConfig
    hooks: CallableHooks
    interpreters: int = INTERPRETERS_PER_SIDE


@dataclass(frozen=True, slots=True, kw_only=True)
class ABSeries:
    """The result of a comparison: the log ratio (B over A) of every pair of launches, and all call times in seconds."""

    log_ratios: tuple[float, ...]
    a: tuple[tuple[float, ...], ...]
    b: tuple[tuple[float, ...], ...]
    stopped_by: str
    interpreters: int = INTERPRETERS_PER_SIDE

    def ratio(self, confidence: float = VERDICT_CONFIDENCE) -> Estimate:
        """Return the time of B over the time of A, with its confidence interval."""
        log = estimate_log_ratio(self.log_ratios, confidence, self.interpreters)
        return Estimate(math.exp(log.value), math.exp(log.low), math.exp(log.high))


def compute_log_ratio(times_a: Sequence[float], times_b: Sequence[float]) -> float:
    """Return the logarithm of the ratio (B over A) of one pair of launches, each represented by its low quantile."""
    low_a, low_b = (float(np.quantile(side, LOW_QUANTILE)) for side in (times_a, times_b))
    return math.log(low_b / low_a)


def estimate_log_ratio(
    log_ratios: Sequence[float], confidence: float = VERDICT_CONFIDENCE, interpreters: int = INTERPRETERS_PER_SIDE
) -> Estimate:
    """Return the trimmed mean of log ratios, with a confidence interval that includes the spread of interpreters."""
    mean = estimate_trimmed_mean(log_ratios, confidence, TRIMMED_SHARE)
    between = NormalDist().inv_cdf((1 + confidence) / 2) * INTERPRETER_SPREAD / math.sqrt(interpreters)
    reach = math.hypot((mean.high - mean.low) / 2, between)
    return Estimate(mean.value, mean.value - reach, mean.value + reach)


class ABRunner:
    """A runner of A/B comparisons that keeps the interpreters of both sides alive between comparisons."""

    def __init__(
        self,
        a: LaunchConfig,
        b: LaunchConfig,
        seed: int | None = None,
        interpreters: int = INTERPRETERS_PER_SIDE,
        hooks: CallableHooks | None = None,
    ) -> None:
        self.hooks, self.interpreters = hooks, interpreters
        self._configs, self._random = (a, b), random.Random(seed)

    def __enter__(self) -> ABRunner:
        self._pairs = [tuple(Workers(config) for config in self._configs) for _ in range(self.interpreters)]
        sides = self._list_workers()
        with ExitStack() as stack, ThreadPoolExecutor(len(sides)) as pool:
            started = [pool.submit(side.__enter__) for side in sides]
            for side, future in zip(sides, started, strict=True):
                if future.exception() is None:
                    stack.push(side)
            for future in started:
                future.result()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def preload(self, build: str, preload_hook: str = "", args: tuple[Any, ...] = ()) -> None:
        """Import the modules of the callable in all interpreters in parallel, outside the budget of any comparison.

        `preload_hook(*args)` imports modules that the module of `build` does not import itself.
        """
        self._preload(self._list_workers(), build, preload_hook, args)

    def preload_side(self, number: int, build: str, preload_hook: str = "", args: tuple[Any, ...] = ()) -> None:
        """Import the modules of the callable in all interpreters of side A (0) or B (1)."""
        self._preload([pair[number] for pair in self._pairs], build, preload_hook, args)

    def _preload(self, workers: Sequence[Workers], build: str, preload_hook: str, args: tuple[Any, ...]) -> None:
        with ThreadPoolExecutor(len(workers)) as pool:
            list(pool.map(lambda side: side.run("tessera.ab.worker:preload", build, preload_hook, args), workers))

    def describe_environments(self, device_hook: str = "", args: tuple[Any, ...] = ()) -> tuple[dict[str, Any], ...]:
        """Return the environment of each side: machine, libraries, settings, and the device of `device_hook`."""
        return tuple(
            side.run("tessera.ab.worker:describe_interpreter", device_hook, args)[0] for side in self._pairs[0]
        )

    def call_on_side_a(self, target: str, *args: Any) -> Any:
        """Call a function in one interpreter of side A."""
        return self._pairs[0][0].run("tessera.ab.worker:call_function", target, args)[0]

    def check_build(self, build: str, args: tuple[Any, ...]) -> None:
        """Build and call the callable in one interpreter of each side, and raise any error."""
        for number in range(2):
            self.check_build_of_side(number, build, args)

    def check_build_of_side(
        self, number: int, build: str, args: tuple[Any, ...], origin: PackageOrigin | None = None
    ) -> None:
        """Build and call the callable in one interpreter of side A (0) or B (1), and raise any error.

        `origin` is the place that the package under test has to be imported from.
        """
        self._pairs[0][number].run("tessera.ab.worker:check_build", build, args, origin)

    def compare(
        self,
        build: str,
        args_a: tuple[Any, ...] = (),
        args_b: tuple[Any, ...] = (),
        *,
        budget: float = 5.0,
        target: float = 0.008,
        confidence: float = VERDICT_CONFIDENCE,
    ) -> ABSeries:
        """Compare the times of `build(*args_a)()` on side A and `build(*args_b)()` on side B.

        Sampling stops after `budget` seconds, or when the half-width of the log ratio's interval is at most `target`
        and the ratio is significant both at the default confidence and at `confidence`, or at neither.
        """
        self.preload(build)
        log_ratios: list[float] = []
        times: tuple[list[tuple[float, ...]], list[tuple[float, ...]]] = ([], [])

        def take_launch() -> int:
            values = self.take_pair(len(log_ratios), build, args_a, args_b)
            log_ratios.append(compute_log_ratio(*values))
            for side, launch in zip(times, values, strict=True):
                side.append(tuple(launch))
            return time.monotonic_ns()

        def count_precise() -> int:
            own, joint = (
                estimate_log_ratio(log_ratios, one, self.interpreters) for one in (VERDICT_CONFIDENCE, confidence)
            )
            precise = (own.high - own.low) / 2 <= target and (0 in own) == (0 in joint)
            return len(log_ratios) if precise else 0

        rule = StoppingRule(
            budget_ns=budget * 1e9, min_samples=2 * MIN_LAUNCHES, min_samples_over_budget=MIN_LAUNCHES, look_ahead=True
        )
        ending = sample_until(rule, take_launch, time.monotonic_ns(), precise=count_precise)
        return ABSeries(
            log_ratios=tuple(log_ratios),
            a=tuple(times[0]),
            b=tuple(times[1]),
            stopped_by=ending.reason,
            interpreters=self.interpreters,
        )

    def take_pair(
        self, number: int, build: str, args_a: tuple[Any, ...], args_b: tuple[Any, ...]
    ) -> tuple[list[float], list[float]]:
        """Launch both sides once, and return the times of all calls in seconds, for A and for B.

        `number` is the number of the pair of launches in its series; it selects the interpreters.
        """
        pair, args = self._pairs[number % len(self._pairs)], (args_a, args_b)
        order = [0, 1]
        self._random.shuffle(order)
        for side in order:
            pair[side].run("tessera.ab.worker:start_launch", build, args[side])
        times: tuple[list[float], list[float]] = ([], [])
        for number in range(MAX_BURSTS):
            if number >= MIN_BURSTS and min(map(len, times)) >= MIN_CALLS:
                break
            self._random.shuffle(order)
            for side in order:
                (burst,) = pair[side].run("tessera.ab.worker:sample_burst", BURST_SECONDS)
                times[side].extend(burst)
        for side in order:
            pair[side].run("tessera.ab.worker:end_launch")
        return times

    def _list_workers(self) -> list[Workers]:
        """Return the interpreters of both sides."""
        return [side for pair in self._pairs for side in pair]


def open_runner(settings: ABSettings) -> ABRunner:
    """Return the runner that all cases of a run share (session hook)."""
    return ABRunner(settings.a, settings.b, interpreters=settings.interpreters, hooks=settings.hooks)
