"""Summary of a record for the report: its median, the interval of the median, and disturbances."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from tessera.measure.statistics import estimate_median
from tessera.results.record import Record

# A median is noisy if its relative interval or the fraction of disturbed samples exceeds these limits.
MAX_RELATIVE_INTERVAL = 0.05
MAX_DISTURBED_FRACTION = 0.25
INTERVAL_HINT = "half the range of the launches' medians; for a single launch, half the width of its 95 % interval"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSummary:
    """The median of a record with its interval.

    With several launches, `median` is the median of the launches' medians, and the bounds are their range, because
    samples of one process do not show the variation between processes. With a single launch, the bounds are the 95 %
    confidence interval of its median. The bounds are None if there are too few samples.
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
        """Reasons why the median is unreliable; empty if it is reliable."""
        reasons = []
        if self.relative is None:
            reasons.append(f"only {self.samples} samples: too few for an interval")
        elif self.relative > MAX_RELATIVE_INTERVAL:
            what = (
                "the interval of the median is"
                if self.launches == 1
                else f"the medians of {self.launches} launches vary by"
            )
            reasons.append(f"{what} ± {self.relative:.0%}")
        if self.disturbed > MAX_DISTURBED_FRACTION:
            reasons.append(f"{self.disturbed:.0%} of the samples were interrupted")
        if reasons and "budget" in self.stopped_by:
            reasons.append("the time budget ended the sampling: increase --budget")
        return reasons


def summarize_record(record: Record) -> RecordSummary | None:
    """Return the summary of a record; None if the record has no samples."""
    launches = [launch for launch in record.launches if launch.values]
    if not launches:
        return None
    medians = [estimate_median(launch.values) for launch in launches]
    median = statistics.median(one.value for one in medians)
    if len(medians) > 1:
        low, high = min(one.value for one in medians), max(one.value for one in medians)
    else:
        low, high = medians[0].low, medians[0].high
    finite = math.isfinite(low) and math.isfinite(high) and median != 0
    samples = sum(len(launch.values) for launch in launches)
    return RecordSummary(
        median=median,
        low=low if finite else None,
        high=high if finite else None,
        relative=(high - low) / 2 / abs(median) if finite else None,
        disturbed=sum(launch.disturbed * len(launch.values) for launch in launches) / samples,
        samples=samples,
        launches=len(launches),
        stopped_by=", ".join(sorted({launch.stopped_by for launch in launches})),
    )
