"""The features a suite can draw cases from, by name. Everything is named, nothing imported until it is used."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.errors import TesseraError


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """Where a feature keeps its doors, each `module:function`.

    `cases(**axes) -> list[Case]` expands what a suite file asks for; `run(worker, case, sampling) -> Record` measures
    one case inside a worker; `section(runs) -> Section` fills its part of the report. Where cases need it,
    `preload(case)` imports what they do in the process that is forked for them, `interpreter(case) -> str` names
    another Python to run in, and `launch(case, base) -> LaunchConfig` other workers than those the run has;
    `program(record) -> str` writes a program that repeats a record without Tessera.
    """

    title: str
    cases: str
    run: str
    section: str
    preload: str = ""
    interpreter: str = ""
    launch: str = ""
    program: str = ""


FEATURES = {
    "ops": Feature(
        title="Operators",
        cases="tessera.operators.cases:cases",
        run="tessera.operators.bench:run_case",
        section="tessera.operators.section.section:section",
        preload="tessera.operators.bench:preload",
        program="tessera.operators.repro:program",
        interpreter="tessera.operators.backends:interpreter",
    ),
    "halo": Feature(
        title="Halo exchange",
        cases="tessera.spatial.cases:cases",
        run="tessera.spatial.bench.run:run_case",
        section="tessera.spatial.section.section:section",
        launch="tessera.spatial.cases:launch",
    ),
    "conv": Feature(
        title="Core grid",
        cases="tessera.coregrid.cases:cases",
        run="tessera.coregrid.bench:run_case",
        section="tessera.coregrid.section:section",
    ),
    "phases": Feature(
        title="Phased execution",
        cases="tessera.phased.cases:cases",
        run="tessera.phased.bench.run:run_case",
        section="tessera.phased.section.section:section",
        launch="tessera.phased.cases:launch",
    ),
    "infer": Feature(
        title="Inference",
        cases="tessera.inference.cases:cases",
        run="tessera.inference.bench:run_case",
        section="tessera.inference.section.section:section",
        launch="tessera.inference.cases:launch",
    ),
}


def feature(name: str) -> Feature:
    if name not in FEATURES:
        raise TesseraError("unknown feature", got=name, allowed=FEATURES)
    return FEATURES[name]
