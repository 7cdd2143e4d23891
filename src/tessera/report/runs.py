"""The runs of a report: name, start, command and records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tessera.report.blocks import Section
from tessera.results.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A stored run in a report."""

    name: str
    created: str
    command: str
    records: Sequence[Record]

    @property
    def seconds(self) -> float:
        """Total time of all cases of the run, in seconds."""
        return sum(record.seconds for record in self.records)

    def filter_feature(self, feature: str) -> RunView:
        """Return a copy of the run with the records of one feature only."""
        records = [record for record in self.records if record.case.feature == feature]
        return RunView(name=self.name, created=self.created, command=self.command, records=records)


# The section builder of a feature gets runs that contain only records of that feature, the baseline first.
SectionBuilder = Callable[[Sequence[RunView]], Section]


def list_features(runs: Sequence[RunView]) -> list[str]:
    """Return the features that have records, in order of first occurrence."""
    return list(dict.fromkeys(record.case.feature for run in runs for record in run.records))
