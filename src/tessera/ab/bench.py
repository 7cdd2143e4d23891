"""Measure one case of an A/B comparison: the ratio of the times of both sides, with a verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from statistics import median
from typing import Any

from tessera.ab.runner import VERDICT_CONFIDENCE, ABRunner, ABSeries
from tessera.errors import Refused, TesseraError
from tessera.launch.worker import RunContext
from tessera.measure.environment import DEVICE_FIELD, describe_environment
from tessera.measure.samples import Samples, Sampling
from tessera.measure.statistics import Verdict, compute_smallest_effect, judge_ratio
from tessera.results.metrics import make_metrics
from tessera.results.record import Case, Record, make_error_record


def compute_joint_confidence(cases: int) -> float:
    """Return the confidence level of each interval, with Bonferroni correction for the number of cases.

    The joint confidence over all cases is then `VERDICT_CONFIDENCE`. Without the correction, some of many unchanged
    cases would be reported as changed by chance.
    """
    return 1 - (1 - VERDICT_CONFIDENCE) / cases


def run_case(context: RunContext, case: Case, sampling: Sampling) -> Record:
    """Compare the two sides on one case; `sampling.target` is the smallest relevant relative change."""
    runner: ABRunner = context.session
    hooks = runner.hooks
    assert hooks is not None, "a run of ab passes the hooks of the compared feature"
    try:
        runner.preload(hooks.callable, hooks.preload, (case,))
        runner.check_build(hooks.callable, (case, True))
        series = runner.compare(
            hooks.callable,
            (case, False),
            (case, False),
            budget=sampling.budget,
            target=sampling.target,
            confidence=sampling.confidence,
        )
        environment_a, environment_b = runner.describe_environments(hooks.device, (case,))
        check_same_device(environment_a, environment_b)
        version = runner.call_on_side_a(hooks.version, case)
    except TesseraError as error:
        return replace(make_error_record(case, error, unit="ratio"), environment=describe_environment())
    record = build_record(case, series, sampling)
    details = {**record.details, "libraries_b": environment_b["libraries"]}
    return replace(record, environment=environment_a, details=details, version=version)


def check_same_device(a: Mapping[str, Any], b: Mapping[str, Any]) -> None:
    """Raise an error if the sides computed on devices of different models: their ratio would not be of the software."""
    models = [environment.get(DEVICE_FIELD, "cpu") for environment in (a, b)]
    if models[0] != models[1]:
        raise Refused("the sides run on different devices", got=f"{models[0]} in A, {models[1]} in B")


def build_record(case: Case, series: ABSeries, sampling: Sampling) -> Record:
    """Build the record of a comparison; each sample is the ratio (B over A) of one pair of launches."""
    ratio = series.ratio(sampling.confidence)
    sides = {name: [median(launch) for launch in launches] for name, launches in (("a", series.a), ("b", series.b))}
    return Record(
        case=case,
        unit="ratio",
        launches=(
            Samples(
                values=tuple(math.exp(value) for value in series.log_ratios),
                stopped_by=series.stopped_by,
                joined_by="B over A, each launch by its low quantile",
            ),
        ),
        metrics=make_metrics(
            {
                "ratio": ratio.value,
                "low": ratio.low,
                "high": ratio.high,
                "time_a": median(sides["a"]),
                "time_b": median(sides["b"]),
                "smallest": compute_smallest_effect(ratio, sampling.target),
            }
        ),
        verdict=judge_series(series, sampling.target, sampling.confidence),
        details={"sides": sides},
    )


def judge_series(series: ABSeries, threshold: float, confidence: float) -> Verdict:
    """Return the verdict on a case.

    `slower` and `faster` require the joint confidence of all cases (`confidence`), `same` only the default confidence.
    """
    verdict = judge_ratio(series.ratio(confidence), threshold)
    return "same" if verdict == "unresolved" and judge_ratio(series.ratio(), threshold) == "same" else verdict
