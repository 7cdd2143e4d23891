"""History of a metric over many runs: the series of each case, its lasting changes, and alerts on new regressions.

A series contains the records that are comparable with the newest record: same device, fingerprint, benchmark version
and unit. All other records are excluded with a reason.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, NamedTuple

from tessera.results.changepoints import MIN_RUNS, LevelShift, find_change_points
from tessera.results.metrics import Direction, get_spec
from tessera.results.observation import Reading
from tessera.results.record import Case

# The detected position of a change may move by this number of runs when further runs are added.
SAME_CHANGE_RUNS = 3

ExclusionReason = Literal["device", "conditions", "version", "unit", "metric", "failed", "refused", "timed out"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesPoint:
    """The value of a metric in one run."""

    run: str
    started: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A lasting change. `run` is the first run of the new level, `age` the number of runs since then, including it."""

    run: str
    started: str
    start: int
    age: int
    before: float
    after: float
    harmful: bool | None

    @property
    def change(self) -> float:
        """Change relative to the previous level, e.g. 0.1 for +10 %."""
        return self.after / self.before - 1

    @property
    def size(self) -> float:
        """Size of the change on the logarithmic scale: halving and doubling have equal sizes."""
        return abs(math.log(self.after / self.before))


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSeries:
    """One case over its comparable runs, the oldest first."""

    case: Case
    unit: str
    direction: Direction
    points: tuple[SeriesPoint, ...]
    changes: tuple[Change, ...]
    errors: tuple[float, ...] = ()  # relative standard errors of the points; empty if not computed

    @property
    def values(self) -> list[float]:
        return [point.value for point in self.points]

    @property
    def judged(self) -> bool:
        """Whether changes can be detected: there are enough runs, and all values are positive."""
        return len(self.points) >= MIN_RUNS and _are_positive(self.values)

    def list_levels(self) -> list[tuple[int, int, float]]:
        """Return the segments of constant level: index of the first run, index after the last run, and median."""
        starts = [0, *(change.start for change in self.changes), len(self.points)]
        pairs = itertools.pairwise(starts)
        return [(start, end, statistics.median(self.values[start:end])) for start, end in pairs]

    def is_new(self, change: Change, threshold: float, newest: int) -> bool:
        """Return whether a change began in the `newest` runs, or was not detectable without these runs."""
        if change.age <= newest:
            return True
        before = slice(None, -newest)
        known = find_change_points(self.values[before], threshold=threshold, errors=self.errors[before] or None)
        return all(abs(shift.start - change.start) > SAME_CHANGE_RUNS for shift in known)

    def is_lasting(self, change: Change, threshold: float) -> bool:
        """Return whether the newest level still differs from the level before the change, in the same direction."""
        last = self.changes[-1].after
        return abs(math.log(last / change.before)) > math.log1p(threshold) and (
            (last > change.before) == (change.after > change.before)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcludedRecord:
    """A record that is in no series, with the reason."""

    key: str
    run: str
    why: ExclusionReason


class SeriesChange(NamedTuple):
    """A change with its series."""

    series: MetricSeries
    change: Change


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The series of a metric. `runs` maps the name of each run with such a case to its suite, the oldest first."""

    metric: str
    threshold: float
    runs: Mapping[str, str]
    series: tuple[MetricSeries, ...]
    excluded: tuple[ExcludedRecord, ...]

    @property
    def changes(self) -> list[SeriesChange]:
        """All changes with their series: regressions first, then by size."""
        changes = [SeriesChange(series, change) for series in self.series for change in series.changes]
        return sorted(changes, key=lambda entry: (not entry.change.harmful, -entry.change.size))

    def is_current(self, series: MetricSeries, newest: int) -> bool:
        """Return whether a case is still measured: the newest runs of its suite contain it.

        Runs of a single command belong to no suite; their cases always count as measured.
        """
        last = series.points[-1].run
        if self.runs[last] in ("", series.case.feature, f"{series.case.feature} {series.case.name}"):
            return True
        same = [run for run, suite in self.runs.items() if suite == self.runs[last]]
        return last in same[-newest:]

    def find_alerts(self, newest: int) -> list[SeriesChange]:
        """Return the lasting regressions that are new in the `newest` runs, the largest first."""
        return [
            entry
            for entry in self.changes
            if entry.change.harmful
            and entry.series.is_new(entry.change, self.threshold, newest)
            and entry.series.is_lasting(entry.change, self.threshold)
            and self.is_current(entry.series, newest)
        ]

    @property
    def common_change_run(self) -> str | None:
        """Run at which half or more of at least ten cases changed (a sign that the machine changed), else None."""
        judged = sum(series.judged for series in self.series)
        at = Counter(change.run for _, change in self.changes).most_common(1)
        return at[0][0] if judged >= 10 and at and 2 * at[0][1] >= judged else None


def build_history(
    readings: Iterable[Reading],
    metric: str,
    *,
    threshold: float = 0.03,
    last: int | None = None,
    by_machine: bool = False,
) -> History:
    """Build the series of all cases from readings; `last` limits them to this number of newest runs.

    With `by_machine`, every machine has its own series of a case, which then has the parameter `host`.
    """
    ordered = sorted(readings, key=lambda reading: _to_timestamp(reading.started))
    if by_machine:
        ordered = [replace(reading, case=_add_machine(reading)) for reading in ordered]
    runs = {reading.run: reading.suite for reading in ordered}
    if last is not None:
        runs = dict(list(runs.items())[-last:])
        ordered = [reading for reading in ordered if reading.run in runs]
    cases: dict[str, list[Reading]] = {}
    for reading in ordered:
        cases.setdefault(reading.case.key, []).append(reading)
    series: list[MetricSeries] = []
    excluded: list[ExcludedRecord] = []
    for key, readings_of_case in cases.items():
        usable = [reading for reading in readings_of_case if _explain_exclusion(reading) is None]
        newest = usable[-1] if usable else None
        comparable = [reading for reading in usable if newest and _find_difference(reading, newest) is None]
        excluded += [
            ExcludedRecord(key=key, run=reading.run, why=why)
            for reading in readings_of_case
            if (why := _explain_exclusion(reading) or (_find_difference(reading, newest) if newest else None))
        ]
        if comparable:
            # A metric merged by minimum comes from one launch, so the spread of all launches is not its error.
            by_launches = get_spec(metric).merge == "median"
            series.append(_build_series(comparable, threshold, by_launches=by_launches))
    return History(metric=metric, threshold=threshold, runs=runs, series=tuple(series), excluded=tuple(excluded))


def _add_machine(reading: Reading) -> Case:
    return replace(reading.case, params={**reading.case.params, "host": reading.machine})


def _explain_exclusion(reading: Reading) -> ExclusionReason | None:
    """Return why a reading has no usable value; None if it has one."""
    if reading.status == "timed_out":
        return "timed out"
    if reading.status != "ok":
        return reading.status
    return None if reading.metric and math.isfinite(reading.metric.value) else "metric"


def _find_difference(reading: Reading, newest: Reading) -> ExclusionReason | None:
    """Return why a reading is not comparable with the newest reading; None if it is comparable."""
    if reading.version != newest.version:
        return "version"
    if reading.device != newest.device:
        return "device"
    if reading.fingerprint != newest.fingerprint:
        return "conditions"
    assert reading.metric
    assert newest.metric
    same = (reading.metric.unit, reading.metric.direction) == (newest.metric.unit, newest.metric.direction)
    return None if same else "unit"


def _build_series(readings: Sequence[Reading], threshold: float, *, by_launches: bool) -> MetricSeries:
    metrics = [reading.metric for reading in readings if reading.metric]
    unit, direction = metrics[-1].unit, metrics[-1].direction
    values = [metric.value for metric in metrics]
    shifts = find_change_points(values, threshold=threshold) if _are_positive(values) else ()
    errors: tuple[float, ...] = ()
    if shifts and by_launches and (unit == "s" or unit.endswith("/s")):
        # Errors of the launches can only make a change less significant: read samples only if there is a change.
        errors = tuple(_compute_relative_error(reading.launches()) for reading in readings)
        shifts = find_change_points(values, threshold=threshold, errors=errors)
    return MetricSeries(
        case=readings[-1].case,
        unit=unit,
        direction=direction,
        points=tuple(
            SeriesPoint(run=reading.run, started=reading.started, value=value)
            for reading, value in zip(readings, values, strict=True)
        ),
        changes=tuple(_build_change(shift, readings, direction) for shift in shifts),
        errors=errors,
    )


def _build_change(shift: LevelShift, readings: Sequence[Reading], direction: Direction) -> Change:
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


def _compute_relative_error(figures: Sequence[float]) -> float:
    """Return the relative standard error of a run's value, from its launches; 0 for a single launch."""
    if len(figures) < 2 or not _are_positive(figures):
        return 0.0
    return statistics.stdev(map(math.log, figures)) / math.sqrt(len(figures))


def _are_positive(values: Sequence[float]) -> bool:
    return all(0 < value < math.inf for value in values)


def _to_timestamp(started: str) -> float:
    """Return a stored date as a number to sort by; text that is not a date sorts first."""
    try:
        return datetime.fromisoformat(started).timestamp()
    except ValueError:
        return -math.inf
