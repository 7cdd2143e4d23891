"""Short names for cases: what all cases of a feature have in common is left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tessera.report.blocks import Cell
from tessera.report.cells import label
from tessera.report.generic import split_params
from tessera.report.runs import RunView
from tessera.results.record import Case


@dataclass(frozen=True, slots=True)
class Name:
    """What a case is called: its key, its feature, and what tells it from the others of its feature.

    `short` is written like a key, `words` are the same without names and brackets, for places where lines break.
    """

    key: str
    feature: str
    short: str
    words: str

    @property
    def cell(self) -> Cell:
        """The short name; the key shows when the pointer rests on it."""
        return Cell(self.short, hint=self.key)

    @property
    def spoken(self) -> str:
        """The feature and the words."""
        return f"{self.feature} {self.words}"

    def __str__(self) -> str:
        return f"{self.feature} {self.short}"


Names = Mapping[str, Name]


def short_names(runs: Sequence[RunView]) -> Names:
    """The name of every case of the runs, by its key."""
    return case_names([record.case for run in runs for record in run.records])


def case_names(cases: Sequence[Case]) -> Names:
    """The name of every case, by its key."""
    names = {}
    for feature in dict.fromkeys(case.feature for case in cases):
        own = {case.key: case for case in cases if case.feature == feature}
        varying, _ = split_params(list(own.values()))
        for key, case in own.items():
            kept = {name: case.params[name] for name in varying if name in case.params}
            short = label(Case(feature=feature, name=case.name, params=kept))
            names[key] = Name(key, feature, short, " ".join([case.name, *map(str, kept.values())]))
    return names
