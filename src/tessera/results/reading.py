"""One metric of one record: what a history is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tessera.results.observation import launch_figures
from tessera.results.record import Case, Metric, Record, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A record's metric, when it was taken, and what decides which others it may be compared with.

    `metric` is None where the record has none of that name. `launches` gives one figure per launch of the record; it is
    a function, because only few readings are asked for them.
    """

    case: Case
    run: str
    started: str
    suite: str
    status: Status
    version: str
    fingerprint: str
    metric: Metric | None
    launches: Callable[[], tuple[float, ...]] = field(default=tuple, compare=False)


def read(record: Record, metric: str, *, run: str, started: str, suite: str = "") -> Reading:
    """The reading of a record at hand."""
    return Reading(
        case=record.case,
        run=run,
        started=started,
        suite=suite,
        status=record.status,
        version=record.version,
        fingerprint=record.fingerprint,
        metric=record.metrics.get(metric),
        launches=partial(_figures, record),
    )


def _figures(record: Record) -> tuple[float, ...]:
    return launch_figures((launch.values for launch in record.launches), record.direction)
