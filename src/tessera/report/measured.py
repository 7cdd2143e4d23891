"""The figures of a record that the report shows: its median, how sure that is, and what disturbed it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from tessera.measure.statistics import median_interval
from tessera.results.record import Metric, Record

# A median known no better than this, or samples disturbed more often than this, deserve a second look.
WIDE = 0.05
OFTEN = 0.25
INTERVAL_HINT = "how far the launches' medians lie apart; of a single launch, half the width of its 95 % interval"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The figure of a record and how well it is known.

    Of several launches it is the middle one's median, and the bounds hold all launches' medians: samples within a
    process say nothing about the next. Of a single launch it is the median with its 95 % interval. The bounds are
    None where there are too few samples to give them.
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
            what = "the median is known to" if self.launches == 1 else f"the {self.launches} launches agree to"
            found.append(f"{what} ± {self.relative:.0%} only")
        if self.disturbed > OFTEN:
            found.append(f"{self.disturbed:.0%} of the samples were interrupted")
        if found and "budget" in self.stopped_by:
            found.append("the time budget ended the sampling: give it more")
        return found


def measured(record: Record) -> Measured | None:
    """The figures of a record; None where it holds no samples."""
    launches = [launch for launch in record.launches if launch.values]
    if not launches:
        return None
    found = [median_interval(launch.values) for launch in launches]
    median = statistics.median(one.value for one in found)
    if len(found) > 1:
        low, high = min(one.value for one in found), max(one.value for one in found)
    else:
        low, high = found[0].low, found[0].high
    known = math.isfinite(low) and math.isfinite(high) and median != 0
    samples = sum(len(launch.values) for launch in launches)
    return Measured(
        median=median,
        low=low if known else None,
        high=high if known else None,
        relative=(high - low) / 2 / abs(median) if known else None,
        disturbed=sum(launch.disturbed * len(launch.values) for launch in launches) / samples,
        samples=samples,
        launches=len(launches),
        stopped_by=", ".join(sorted({launch.stopped_by for launch in launches})),
    )


def predictions(record: Record) -> Iterator[tuple[str, Metric, Metric]]:
    """Each figure that was both predicted and measured: its name, the prediction, the measurement."""
    for name, predicted in record.predicted.items():
        if name in record.metrics:
            yield name, predicted, record.metrics[name]
