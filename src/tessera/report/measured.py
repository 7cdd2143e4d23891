"""The figures of a record that the report shows: its median, how sure that is, and what disturbed it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tessera.measure.statistics import median_interval
from tessera.results.record import Metric, Record

# A median known no better than this, or samples disturbed more often than this, deserve a second look.
WIDE = 0.05
OFTEN = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The median of all samples of a record between the bounds of its 95 % interval.

    The bounds are None where there are too few samples to give them.
    """

    median: float
    low: float | None
    high: float | None
    relative: float | None
    disturbed: float
    samples: int
    launches: int
    stopped_by: str

    @property
    def noise(self) -> list[str]:
        """Why this figure is to be taken with care; empty when it is not."""
        found = []
        if self.relative is None:
            found.append(f"only {self.samples} samples: too few for an interval")
        elif self.relative > WIDE:
            found.append(f"the median is known to ± {self.relative:.0%} only")
        if self.disturbed > OFTEN:
            found.append(f"{self.disturbed:.0%} of the samples were interrupted")
        if found and "budget" in self.stopped_by:
            found.append("the time budget ended the sampling: give it more")
        return found


def measured(record: Record) -> Measured | None:
    """The figures of a record; None where it holds no samples."""
    values = record.values
    if not values:
        return None
    found = median_interval(values)
    known = math.isfinite(found.low) and math.isfinite(found.high) and math.isfinite(found.relative)
    hit = sum(launch.disturbed * len(launch.values) for launch in record.launches)
    return Measured(
        median=found.value,
        low=found.low if known else None,
        high=found.high if known else None,
        relative=found.relative if known else None,
        disturbed=hit / len(values),
        samples=len(values),
        launches=len(record.launches),
        stopped_by=", ".join(sorted({launch.stopped_by for launch in record.launches})),
    )


def predictions(record: Record) -> Iterator[tuple[str, Metric, Metric]]:
    """Each figure that was both predicted and measured: its name, the prediction, the measurement."""
    for name, predicted in record.predicted.items():
        if name in record.metrics:
            yield name, predicted, record.metrics[name]
