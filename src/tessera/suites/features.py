"""The registry of features. Every hook is a `module:function` string, imported when it is first used."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.errors import TesseraError


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """The hooks of a feature.

    Required:

    - `run(context, case, sampling) -> Record` measures one case inside a worker; `context` is a `RunContext`.
    - `section(runs) -> Section` builds the feature's section of the report.

    Optional:

    - `cases(**axes) -> list[Case]` expands a block of a suite file. A feature without it cannot be part of a suite.
    - `preload(case)` imports the modules of a case, in the process from which the measuring process is forked.
    - `interpreter(case) -> str` returns the path of another Python interpreter for the case.
    - `launch(case, base) -> LaunchConfig` replaces the launch configuration of the run for the case.
    - `session(settings) -> ContextManager` opens an object that all cases of a run share, for features that measure
      inline; `settings` are the settings of the plan, and the object is `context.session`.
    - `device(case) -> str` returns name and model of the case's accelerator; empty for the CPU.
    - `callable(case, check) -> Callable[[], Any]` builds the callable that a case times; with `check` its output
      is compared with the reference first. It may also return a context manager that yields the callable and cleans
      up. `version(case) -> str` is the version of the benchmark of a case. Both are required of a feature that
      `tessera ab` compares; `tessera gate` compares other features by whole measurements.
    - `findings(records) -> list[Finding]` derives findings from the feature's records.
    - `program(record, *, allow_initializer) -> str` writes a program that repeats a record without Tessera.
    """

    title: str
    run: str
    section: str
    cases: str = ""
    preload: str = ""
    interpreter: str = ""
    launch: str = ""
    session: str = ""
    callable: str = ""
    device: str = ""
    version: str = ""
    findings: str = ""
    program: str = ""


FEATURES = {
    "ops": Feature(
        title="Operators",
        cases="tessera.operators.cases:cases",
        run="tessera.operators.bench:run_case",
        section="tessera.operators.section.section:build_section",
        findings="tessera.operators.findings:find_in_operators",
        preload="tessera.operators.bench:preload",
        callable="tessera.operators.bench:build_callable",
        device="tessera.operators.device_bench:describe_case_device",
        version="tessera.operators.preparation:find_version",
        program="tessera.operators.repro:write_program",
        interpreter="tessera.operators.backends:find_case_interpreter",
    ),
    "ab": Feature(
        title="A/B comparison",
        run="tessera.ab.bench:run_case",
        section="tessera.ab.section:build_section",
        launch="tessera.ab.cases:launch_inline",
        session="tessera.ab.runner:open_runner",
        program="tessera.operators.repro:write_program",
    ),
    "halo": Feature(
        title="Halo exchange",
        cases="tessera.spatial.cases:cases",
        run="tessera.spatial.bench.run:run_case",
        section="tessera.spatial.section.section:section",
        findings="tessera.spatial.findings:find_in_halo",
        launch="tessera.spatial.cases:launch",
    ),
    "conv": Feature(
        title="Core grid",
        cases="tessera.coregrid.cases:cases",
        run="tessera.coregrid.bench:run_case",
        section="tessera.coregrid.section:section",
        findings="tessera.coregrid.findings:find_in_core_grid",
    ),
    "phases": Feature(
        title="Phased execution",
        cases="tessera.phased.cases:cases",
        run="tessera.phased.bench.run:run_case",
        section="tessera.phased.section.section:build_section",
        findings="tessera.phased.findings:find_in_phases",
        launch="tessera.phased.cases:launch",
    ),
    "infer": Feature(
        title="Inference",
        cases="tessera.inference.cases:cases",
        run="tessera.inference.bench:run_case",
        section="tessera.inference.section.section:build_section",
        findings="tessera.inference.findings:find_in_inference",
        launch="tessera.inference.cases:launch_inline",
    ),
    "function": Feature(
        title="Functions",
        cases="tessera.functions.cases:cases",
        run="tessera.functions.bench:run_case",
        section="tessera.functions.bench:build_section",
        preload="tessera.functions.bench:preload",
        callable="tessera.functions.bench:build_callable",
        version="tessera.functions.bench:find_version",
        launch="tessera.functions.cases:choose_launch",
    ),
}


def get_feature(name: str) -> Feature:
    """Return a registered feature.

    Raises:
        TesseraError: no feature has this name.
    """
    if name not in FEATURES:
        raise TesseraError("unknown feature", got=name, allowed=FEATURES)
    return FEATURES[name]
