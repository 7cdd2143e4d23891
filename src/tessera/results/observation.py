"""Reduced forms of a record: one value per launch for comparisons, one metric for histories."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from tessera.measure.environment import DEVICE_FIELD
from tessera.results.record import Case, Direction, Metric, Record, Status

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

QUARTILE = 0.25  # quantile of a launch that represents it; for rates 1 - QUARTILE


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One case of one run, with one value per launch in the record's unit."""

    key: str
    version: str
    status: Status
    reason: str
    unit: str
    direction: Direction
    figures: tuple[float, ...]
    environment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        return str(self.environment.get("fingerprint", ""))


def make_observation(record: Record) -> Observation:
    """Reduce a record to its observation."""
    return Observation(
        key=record.case.key,
        version=record.version,
        status=record.status,
        reason=record.reason,
        unit=record.unit,
        direction=record.direction,
        figures=summarize_launches((launch.values for launch in record.launches), record.direction),
        environment=record.environment,
    )


def summarize_launches(launches: Iterable[ArrayLike], direction: Direction) -> tuple[float, ...]:
    """Return one value per launch that has samples: the better quartile, i.e. p25 of times and p75 of rates.

    Other work on a machine can only slow a call down, so the better quartile varies less between launches than the
    median or the mean.

    >>> summarize_launches([[1.0, 2.0, 3.0, 4.0, 90.0], [], [2.0]], "lower")
    (2.0, 2.0)
    >>> summarize_launches([[1.0, 2.0, 3.0, 4.0, 5.0]], "higher")
    (4.0,)
    """
    import numpy as np

    share = 1 - QUARTILE if direction == "higher" else QUARTILE
    figures = []
    for launch in launches:
        ordered = np.array(launch, dtype=np.float64)
        if not len(ordered):
            continue
        ordered.sort()
        # Linear interpolation as in np.quantile, which is ten times slower for arrays this short.
        place = share * (len(ordered) - 1)
        left = int(place)
        low, high = float(ordered[left]), float(ordered[min(left + 1, len(ordered) - 1)])
        figures.append(low + (high - low) * (place - left))
    return tuple(figures)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One metric of one record, with its run and the fields that decide whether readings are comparable.

    `metric` is None if the record does not have the metric. `launches` is a function that returns one value per launch;
    it is called only if these values are needed. `machine` names the processor and the fingerprint.
    """

    case: Case
    run: str
    started: str
    suite: str
    status: Status
    version: str
    fingerprint: str
    metric: Metric | None
    machine: str = ""
    device: str = ""  # accelerator that computed; empty for the CPU
    launches: Callable[[], tuple[float, ...]] = field(default=tuple, compare=False)


def describe_machine(environment: Mapping[str, Any]) -> str:
    """Return a short name of a machine and its settings: the processor and the start of the fingerprint.

    >>> describe_machine({"cpu": "Ryzen 9", "fingerprint": "0123456789abcdef"})
    'Ryzen 9 #012345'
    """
    return f"{environment.get('cpu', 'unknown')} #{str(environment.get('fingerprint', ''))[:6]}"


def read_metric(record: Record, metric: str, *, run: str, started: str, suite: str = "") -> Reading:
    """Return the reading of a metric from a record in memory."""
    return Reading(
        case=record.case,
        run=run,
        started=started,
        suite=suite,
        status=record.status,
        version=record.version,
        fingerprint=record.fingerprint,
        device=str(record.environment.get(DEVICE_FIELD, "")),
        metric=record.metrics.get(metric),
        machine=describe_machine(record.environment),
        launches=partial(_summarize_record, record),
    )


def _summarize_record(record: Record) -> tuple[float, ...]:
    return summarize_launches((launch.values for launch in record.launches), record.direction)
