"""A metric over many runs, case by case: its series, where it changed, and which changes are new and harmful.

Only records that may be compared form a series: those that share fingerprint and benchmark version with the newest.
The others stand apart, each with its reason.
"""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from tessera.results.changepoints import MIN_RUNS, Shift, change_points
from tessera.results.reading import Reading
from tessera.results.record import FLOOR, Case, Direction

SAME_CHANGE = 3  # runs by which the place of a change may move when more runs are known

Why = Literal["conditions", "version", "unit", "metric", "failed", "refused", "timed out"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The figure of one run."""

    run: str
    started: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A lasting change: `run` is the first of the new level, `age` how many runs of the series that makes since."""

    run: str
    started: str
    start: int
    age: int
    before: float
    after: float
    harmful: bool | None

    @property
    def change(self) -> float:
        """The change as a fraction of the level before."""
        return self.after / self.before - 1

    @property
    def size(self) -> float:
        """How large the change is, halving and doubling alike."""
        return abs(math.log(self.after / self.before))


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One case over the runs in which it may be compared, the oldest first."""

    case: Case
    unit: str
    direction: Direction
    points: tuple[Point, ...]
    changes: tuple[Change, ...]
    errors: tuple[float, ...] = ()  # of the points, relative, where they were needed

    @property
    def values(self) -> list[float]:
        return [point.value for point in self.points]

    @property
    def judged(self) -> bool:
        """Whether there are runs enough to tell a change from noise, and figures that have a ratio."""
        return len(self.points) >= MIN_RUNS and _ratios(self.values)

    def levels(self) -> list[tuple[int, int, float]]:
        """The stretches of one level: where each starts and ends, and its typical figure."""
        starts = [0, *(change.start for change in self.changes), len(self.points)]
        pairs = itertools.pairwise(starts)
        return [(start, end, statistics.median(self.values[start:end])) for start, end in pairs]

    def is_new(self, change: Change, threshold: float, newest: int) -> bool:
        """Whether a change began in the newest runs, or could not be told from noise before them."""
        if change.age <= newest:
            return True
        before = slice(None, -newest)
        known = change_points(self.values[before], threshold=threshold, errors=self.errors[before] or None)
        return all(abs(shift.start - change.start) > SAME_CHANGE for shift in known)

    def lasts(self, change: Change, threshold: float) -> bool:
        """Whether the newest level is still on the same side of the one before the change, beyond the threshold."""
        last = self.changes[-1].after
        return abs(math.log(last / change.before)) > math.log1p(threshold) and (
            (last > change.before) == (change.after > change.before)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """A record that is in no series, and why."""

    key: str
    run: str
    why: Why


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """A new and harmful change."""

    series: Series
    change: Change


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The series of a metric. `runs` are those that hold any of the cases, with their suites, the oldest first."""

    metric: str
    threshold: float
    runs: Mapping[str, str]
    series: tuple[Series, ...]
    apart: tuple[Apart, ...]

    @property
    def changes(self) -> list[tuple[Series, Change]]:
        """Every change, the largest harmful ones first."""
        found = [(series, change) for series in self.series for change in series.changes]
        return sorted(found, key=lambda pair: (not pair[1].harmful, -pair[1].size))

    def current(self, series: Series, newest: int) -> bool:
        """Whether a case is still measured: the newest runs of its last run's suite hold it.

        Runs of a command of their own belong to no suite: nobody left anything out of them.
        """
        last = series.points[-1].run
        if self.runs[last] in ("", series.case.feature, f"{series.case.feature} {series.case.name}"):
            return True
        same = [run for run, suite in self.runs.items() if suite == self.runs[last]]
        return last in same[-newest:]

    def alerts(self, newest: int) -> list[Alert]:
        """The regressions that the newest runs of their case have brought to light, if they last, the worst first."""
        found = [
            Alert(series=series, change=change)
            for series, change in self.changes
            if change.harmful
            and series.is_new(change, self.threshold, newest)
            and series.lasts(change, self.threshold)
            and self.current(series, newest)
        ]
        return sorted(found, key=lambda alert: -alert.change.size)

    @property
    def moved_together(self) -> str | None:
        """The run at which half of ten judged cases or more changed, if there is one: did the machine change?"""
        judged = sum(series.judged for series in self.series)
        at = Counter(change.run for _, change in self.changes).most_common(1)
        return at[0][0] if judged >= 10 and at and 2 * at[0][1] >= judged else None


def history(readings: Iterable[Reading], metric: str, *, threshold: float = 0.03, last: int | None = None) -> History:
    """The series of all cases among some readings; `last` keeps the newest runs only."""
    ordered = sorted(readings, key=lambda reading: _moment(reading.started))
    runs = {reading.run: reading.suite for reading in ordered}
    if last is not None:
        runs = dict(list(runs.items())[-last:])
        ordered = [reading for reading in ordered if reading.run in runs]
    cases: dict[str, list[Reading]] = {}
    for reading in ordered:
        cases.setdefault(reading.case.key, []).append(reading)
    series: list[Series] = []
    apart: list[Apart] = []
    for key, own in cases.items():
        usable = [reading for reading in own if _obstacle(reading) is None]
        newest = usable[-1] if usable else None
        kept = [reading for reading in usable if newest and _difference(reading, newest) is None]
        apart += [
            Apart(key=key, run=reading.run, why=why)
            for reading in own
            if (why := _obstacle(reading) or (_difference(reading, newest) if newest else None))
        ]
        if kept:
            # the floor is of one launch: how far apart they all are says nothing of it
            series.append(_series(kept, threshold, by_launches=metric != FLOOR))
    return History(metric=metric, threshold=threshold, runs=runs, series=tuple(series), apart=tuple(apart))


def matches(case: Case, filters: Mapping[str, Sequence[str]]) -> bool:
    """Whether each parameter that is filtered has one of the values asked for.

    >>> matches(Case(feature="ops", name="add", params={"size": "small", "n": 8}), {"size": ["small"], "n": ["8"]})
    True
    """
    return all(
        name in case.params and not {str(case.params[name]), json.dumps(case.params[name])}.isdisjoint(values)
        for name, values in filters.items()
    )


def _obstacle(reading: Reading) -> Why | None:
    """Why a reading gives no figure, if so."""
    if reading.status == "timed_out":
        return "timed out"
    if reading.status != "ok":
        return reading.status
    return None if reading.metric and math.isfinite(reading.metric.value) else "metric"


def _difference(reading: Reading, newest: Reading) -> Why | None:
    """Why a figure may not be compared with the newest, if so."""
    if reading.version != newest.version:
        return "version"
    if reading.fingerprint != newest.fingerprint:
        return "conditions"
    assert reading.metric
    assert newest.metric
    one, other = reading.metric, newest.metric
    return "unit" if (one.unit, one.direction) != (other.unit, other.direction) else None


def _series(readings: Sequence[Reading], threshold: float, *, by_launches: bool) -> Series:
    metrics = [reading.metric for reading in readings if reading.metric]
    unit, direction = metrics[-1].unit, metrics[-1].direction
    values = [metric.value for metric in metrics]
    shifts = change_points(values, threshold=threshold) if _ratios(values) else ()
    errors: tuple[float, ...] = ()
    if shifts and by_launches and (unit == "s" or unit.endswith("/s")):
        # The launches can only make a change less sure: their samples are read where there is one.
        errors = tuple(_error(reading.launches()) for reading in readings)
        shifts = change_points(values, threshold=threshold, errors=errors)
    return Series(
        case=readings[-1].case,
        unit=unit,
        direction=direction,
        points=tuple(
            Point(run=reading.run, started=reading.started, value=value)
            for reading, value in zip(readings, values, strict=True)
        ),
        changes=tuple(_change(shift, readings, direction) for shift in shifts),
        errors=errors,
    )


def _change(shift: Shift, readings: Sequence[Reading], direction: Direction) -> Change:
    first = readings[shift.start]
    return Change(
        run=first.run,
        started=first.started,
        start=shift.start,
        age=len(readings) - shift.start,
        before=shift.before,
        after=shift.after,
        harmful=(shift.after > shift.before) == (direction == "lower") if direction else None,
    )


def _error(figures: Sequence[float]) -> float:
    """The relative standard error that the launches of a run give its figure; nothing is known from one."""
    if len(figures) < 2 or not _ratios(figures):
        return 0.0
    return statistics.stdev(map(math.log, figures)) / math.sqrt(len(figures))


def _ratios(values: Sequence[float]) -> bool:
    return all(0 < value < math.inf for value in values)


def _moment(started: str) -> float:
    """A stored date as a number; what is no date comes first."""
    try:
        return datetime.fromisoformat(started).timestamp()
    except ValueError:
        return -math.inf
