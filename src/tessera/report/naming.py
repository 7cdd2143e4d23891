"""Short names for cases, without the parameters that all cases of a feature share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tessera.report.blocks import Cell
from tessera.report.cells import format_case_label
from tessera.report.record_tables import split_params
from tessera.report.runs import RunView
from tessera.results.record import Case


@dataclass(frozen=True, slots=True)
class CaseName:
    """The names of a case: its key, its feature, and a short name within the feature.

    `short` is written like a key, e.g. `add[size=small]`; `words` is the short name as plain words, e.g. `add small`.
    """

    key: str
    feature: str
    short: str
    words: str

    @property
    def cell(self) -> Cell:
        """Table cell with the short name, and the key as its tooltip."""
        return Cell(self.short, hint=self.key)

    @property
    def phrase(self) -> str:
        """The feature and the short name as words, without brackets."""
        return f"{self.feature} {self.words}"

    def __str__(self) -> str:
        return f"{self.feature} {self.short}"


CaseNames = Mapping[str, CaseName]


def name_cases_of_runs(runs: Sequence[RunView]) -> CaseNames:
    """Return the names of all cases in some runs, by case key."""
    return name_cases([record.case for run in runs for record in run.records])


def name_cases(cases: Sequence[Case]) -> CaseNames:
    """Return the names of some cases, by case key."""
    names = {}
    for feature in dict.fromkeys(case.feature for case in cases):
        feature_cases = {case.key: case for case in cases if case.feature == feature}
        varying, _ = split_params(list(feature_cases.values()))
        for key, case in feature_cases.items():
            params = {name: case.params[name] for name in varying if name in case.params}
            short = format_case_label(Case(feature=feature, name=case.name, params=params))
            names[key] = CaseName(key, feature, short, " ".join([case.name, *map(str, params.values())]))
    return names
