"""What the report sees of a run: its name, when and how it was started, and its records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tessera.report.blocks import Section
from tessera.results.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One stored run, as the report shows it."""

    name: str
    created: str
    command: str
    records: Sequence[Record]

    @property
    def seconds(self) -> float:
        """The time its cases took, one after the other."""
        return sum(record.seconds for record in self.records)

    def of(self, feature: str) -> RunView:
        """The same run with the records of one feature only."""
        kept = [record for record in self.records if record.case.feature == feature]
        return RunView(name=self.name, created=self.created, command=self.command, records=kept)


# A feature's builder gets the runs with its own records only, the baseline first.
SectionBuilder = Callable[[Sequence[RunView]], Section]


def features(runs: Sequence[RunView]) -> list[str]:
    """The features that have records, in the order in which they first occur."""
    return list(dict.fromkeys(record.case.feature for run in runs for record in run.records))
