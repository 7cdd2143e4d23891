"""The features a suite can draw cases from, by name. Everything is named, nothing imported until it is used."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.errors import TesseraError


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """Where a feature keeps its three doors, each `module:function`.

    `cases(**axes) -> list[Case]` expands what a suite file asks for; `run(worker, case, sampling) -> Record` measures
    one case inside a worker; `section(runs) -> Section` fills its part of the report.
    """

    title: str
    cases: str
    run: str
    section: str


FEATURES = {
    "ops": Feature(
        title="Operators",
        cases="tessera.operators.cases:cases",
        run="tessera.operators.bench:run_case",
        section="tessera.operators.section:section",
    ),
}


def feature(name: str) -> Feature:
    if name not in FEATURES:
        raise TesseraError("unknown feature", got=name, allowed=FEATURES)
    return FEATURES[name]
