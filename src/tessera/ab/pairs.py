"""Pairs of launches of one case, one on each side: in interleaved bursts, or as two whole measurements.

A feature with a callable hook is compared in bursts (`ab.runner`): both sides alternate every few milliseconds. All
other features, such as exchanges between ranks or replicas of a network, are measured by their own run hook, one side
after the other in random order.
"""

from __future__ import annotations

import math
import random
import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from statistics import median
from typing import Protocol

from tessera.ab.cases import BURST_TIME_LIMIT
from tessera.ab.runner import ABRunner, compute_log_ratio
from tessera.ab.worker import LaunchJob, PackageOrigin
from tessera.errors import BenchmarkFailed, Refused, TesseraError
from tessera.launch.config import LaunchConfig
from tessera.launch.fresh import load_object
from tessera.launch.worker import RunContext
from tessera.launch.workers import Workers
from tessera.measure.samples import Sampling
from tessera.results.record import Case, Record

MEASUREMENT_SECONDS = 0.5  # sampling time of one whole measurement
SIDE_NAMES = ("base", "head")


class ComparedFeature(Protocol):
    """The hooks of a feature whose cases are compared, each a `module:function` string (see `suites.features`)."""

    @property
    def run(self) -> str: ...

    @property
    def preload(self) -> str: ...

    @property
    def launch(self) -> str: ...

    @property
    def interpreter(self) -> str: ...

    @property
    def callable(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPair:
    """One pair of launches: the log ratio (B over A) of the times, and the median time of each side in seconds."""

    log_ratio: float
    time_a: float
    time_b: float


class PairSource(Protocol):
    """A case that can be launched on both sides."""

    def check(self) -> None:
        """Run the case once on each side. An error of the base raises `Refused`, of the head `BenchmarkFailed`."""

    def take_pair(self, number: int) -> LaunchPair:
        """Launch both sides once; `number` is the number of the pair in its series."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstPairs:
    """Pairs of launches in interleaved bursts, for features with a callable hook."""

    runner: ABRunner
    feature: ComparedFeature
    case: Case
    origins: tuple[PackageOrigin | None, PackageOrigin | None] = (None, None)

    def check(self) -> None:
        for side in range(2):
            try:
                self.runner.preload_side(side, self.feature.callable, self.feature.preload, (self.case,))
                self.runner.check_build_of_side(side, self.feature.callable, (self.case, True), self.origins[side])
            except TesseraError as error:
                raise _name_side(side, error) from None

    def take_pair(self, number: int) -> LaunchPair:
        args = (self.case, False)
        times_a, times_b = self.runner.take_pair(number, self.feature.callable, args, args)
        return LaunchPair(log_ratio=compute_log_ratio(times_a, times_b), time_a=median(times_a), time_b=median(times_b))


class MeasuredPairs:
    """Pairs of whole measurements, for features without a callable hook.

    `stack` closes the single workers, which are kept for all launches; ranks are started for every launch.
    """

    def __init__(
        self,
        sides: tuple[LaunchConfig, LaunchConfig],
        feature: ComparedFeature,
        case: Case,
        stack: ExitStack,
        origins: tuple[PackageOrigin | None, PackageOrigin | None] = (None, None),
    ) -> None:
        self._configs = tuple(_configure_launch(feature, case, side) for side in sides)
        self._sides, self._feature, self._case = sides, feature, case
        self._stack, self._origins = stack, origins
        self._kept: dict[int, Workers] = {}

    def check(self) -> None:
        for side in range(2):
            try:
                self._measure(side)
            except TesseraError as error:
                raise _name_side(side, error) from None

    def take_pair(self, number: int) -> LaunchPair:
        records: dict[int, Record] = {}
        for side in random.sample((0, 1), 2):
            records[side] = self._measure(side)
        value_a, value_b = (median(records[side].values) for side in (0, 1))
        log_ratio = math.log(value_b / value_a)
        if records[0].direction == "higher":
            return LaunchPair(log_ratio=-log_ratio, time_a=1 / value_a, time_b=1 / value_b)
        return LaunchPair(log_ratio=log_ratio, time_a=value_a, time_b=value_b)

    def _measure(self, side: int) -> Record:
        job = LaunchJob(
            run=self._feature.run,
            preload=self._feature.preload,
            case=self._case,
            sampling=Sampling(budget=MEASUREMENT_SECONDS, target=0.001),
            origin=self._origins[side],
        )
        context = RunContext(launch=self._sides[side])
        config = self._configs[side]
        if config.workers > 1:
            with Workers(config) as ranks:
                record: Record = ranks.run("tessera.ab.worker:measure_launch", job, context)[0]
        else:
            if side not in self._kept:
                self._kept[side] = self._stack.enter_context(Workers(config))
            record = self._kept[side].run("tessera.ab.worker:measure_launch", job, context)[0]
        if record.status != "ok":
            raise BenchmarkFailed(record.reason)
        if not record.values:
            raise Refused("the case has no samples that could be compared")
        return record


def _configure_launch(feature: ComparedFeature, case: Case, side: LaunchConfig) -> LaunchConfig:
    """Return the launch configuration of a case on one side."""
    config: LaunchConfig = load_object(feature.launch)(case, side) if feature.launch else side
    if feature.interpreter and config.python == sys.executable:
        config = replace(config, python=load_object(feature.interpreter)(case) or config.python)
    return replace(config, time_limit=BURST_TIME_LIMIT)


def _name_side(side: int, error: TesseraError) -> TesseraError:
    """Return the error of one side. A case that the base cannot run is new in the head, and not a failure."""
    text = f"the {SIDE_NAMES[side]} cannot run the case: {error}"
    return Refused(text) if side == 0 or isinstance(error, Refused) else BenchmarkFailed(text)
