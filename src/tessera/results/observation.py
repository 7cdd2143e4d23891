"""What a comparison sees of a record: one figure per launch, and what decides whether it may be compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tessera.results.record import Direction, Record, Status

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

QUARTER = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One case of one run, reduced to `figures`: one number per launch, in the record's unit."""

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


def observe(record: Record) -> Observation:
    """Reduce a record to what is compared."""
    return Observation(
        key=record.case.key,
        version=record.version,
        status=record.status,
        reason=record.reason,
        unit=record.unit,
        direction=record.direction,
        figures=launch_figures((launch.values for launch in record.launches), record.direction),
        environment=record.environment,
    )


def launch_figures(launches: Iterable[ArrayLike], direction: Direction) -> tuple[float, ...]:
    """One number per launch that has values: the quartile on the good side, p25 of times and p75 of rates.

    Whatever else runs on a machine only ever makes a call slower, so the quartile on the good side varies
    little between launches where medians and means vary much.

    >>> launch_figures([[1.0, 2.0, 3.0, 4.0, 90.0], [], [2.0]], "lower")
    (2.0, 2.0)
    >>> launch_figures([[1.0, 2.0, 3.0, 4.0, 5.0]], "higher")
    (4.0,)
    """
    import numpy as np

    share = 1 - QUARTER if direction == "higher" else QUARTER
    figures = []
    for launch in launches:
        ordered = np.array(launch, dtype=np.float64)
        if not len(ordered):
            continue
        ordered.sort()
        # Linear between the two neighbours, as np.quantile, which takes ten times longer for arrays this
        # short.
        place = share * (len(ordered) - 1)
        left = int(place)
        low, high = float(ordered[left]), float(ordered[min(left + 1, len(ordered) - 1)])
        figures.append(low + (high - low) * (place - left))
    return tuple(figures)
