"""The gate: compare two sides on many cases, with one false-alarm rate for all cases together.

A gate has two stages. Screening launches all cases in turn, and leaves a case as soon as its ratio is known to be
within the threshold or looks changed. Screening alone must not decide: the more cases and the more looks, the more
unchanged cases look changed. Confirmation therefore measures the suspects once more, in new interpreters and with new
data. Only this data decides. The false-alarm rate is divided by the number of suspects and of looks at their data
(Bonferroni). The probability of any false alarm is then at most the rate asked for, however many cases were screened.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Literal

from tessera.ab.pairs import BurstPairs, ComparedFeature, LaunchPair, MeasuredPairs, PairSource
from tessera.ab.runner import (
    INTERPRETERS_PER_SIDE,
    MIN_LAUNCHES,
    VERDICT_CONFIDENCE,
    ABRunner,
    estimate_log_ratio,
)
from tessera.ab.worker import PackageOrigin
from tessera.errors import TesseraError
from tessera.launch.config import LaunchConfig
from tessera.measure.environment import describe_environment
from tessera.measure.samples import Samples
from tessera.measure.statistics import Estimate, Verdict, compute_smallest_effect, judge_ratio
from tessera.results.metrics import make_metrics
from tessera.results.record import Case, Record, make_error_record

SCREENING_SHARE = 0.6  # share of the budget for screening; the rest is reserved for confirmation
LOOK_GROWTH = 1.25  # a case is examined again when it has this many times more launches
CONFIRMATION_LAUNCHES = (16, 32, 64)  # numbers of launches at which the data of a suspect is examined

OpenCases = Callable[[Sequence["GatedCase"], "GateSides", ExitStack], Sequence[PairSource]]
Stage = Literal["screening", "confirmation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRule:
    """The rule of a gate: smallest relevant change, false-alarm rate over all cases, and time in seconds."""

    threshold: float = 0.03
    false_alarms: float = 0.01
    budget: float = 600.0

    def __post_init__(self) -> None:
        if not 0 < self.false_alarms < 1:
            raise TesseraError("invalid false-alarm rate", got=self.false_alarms, allowed="above 0 and below 1")

    def compute_confidence(self, suspects: int) -> float:
        """Return the confidence of each interval in the confirmation of a number of suspects."""
        return 1 - self.false_alarms / max(1, suspects) / len(CONFIRMATION_LAUNCHES)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedCase:
    """A case to gate, with its feature's hooks. `source` is the file and line that defines the case, if known."""

    case: Case
    feature: ComparedFeature
    source: tuple[str, int] | None = None


@dataclass(slots=True, kw_only=True)
class CaseProgress:
    """The launches of one case in the current stage, and its verdict so far."""

    gated: GatedCase
    source: PairSource
    stage: Stage = "screening"
    pairs: list[LaunchPair] = field(default_factory=list)
    confidence: float = VERDICT_CONFIDENCE
    interpreters: int = INTERPRETERS_PER_SIDE
    verdict: Verdict | None = None  # None while the case is not decided
    error: TesseraError | None = None
    examine_at: int = MIN_LAUNCHES

    def estimate_ratio(self, confidence: float | None = None) -> Estimate:
        """Return the time of the head over the time of the base, with its confidence interval."""
        log = estimate_log_ratio(
            [pair.log_ratio for pair in self.pairs], confidence or self.confidence, self.interpreters
        )
        return Estimate(math.exp(log.value), math.exp(log.low), math.exp(log.high))

    def launch(self) -> None:
        """Take one pair of launches; an error ends the case."""
        try:
            self.pairs.append(self.source.take_pair(len(self.pairs)))
        except TesseraError as error:
            self.error = error


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSides:
    """The two sides of a gate: base and head. `origins` are the places that the package is imported from."""

    base: LaunchConfig
    head: LaunchConfig
    interpreters: int = INTERPRETERS_PER_SIDE
    origins: tuple[PackageOrigin | None, PackageOrigin | None] = (None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """The result of one case: a record with verdict, and the stage that decided."""

    gated: GatedCase
    record: Record
    stage: Stage

    @property
    def label(self) -> str:
        """The name of the case in reports."""
        return self.gated.case.key


def run_gate(
    cases: Sequence[GatedCase],
    sides: GateSides,
    rule: GateRule,
    show: Callable[[str], None] = lambda text: None,
    open_cases: OpenCases | None = None,
) -> list[GateResult]:
    """Screen all cases, confirm the suspects, and return the results in the order of the cases.

    `open_cases` starts the interpreters of a stage and returns the source of launches of each case.
    """
    opener = open_cases or open_sources
    screened = _screen(cases, sides, rule, opener, show)
    suspects = [progress.gated for progress in screened if progress.verdict in ("slower", "faster")]
    confirmed: dict[str, CaseProgress] = {}
    if suspects:
        show(f"confirming {len(suspects)} of {len(cases)} cases in new interpreters")
        confirmed = {p.gated.case.key: p for p in _confirm(suspects, sides, rule, opener, show)}
    environment = describe_environment()
    return [_build_result(confirmed.get(p.gated.case.key, p), rule, environment) for p in screened]


def _screen(
    cases: Sequence[GatedCase], sides: GateSides, rule: GateRule, opener: OpenCases, show: Callable[[str], None]
) -> list[CaseProgress]:
    """Launch all cases in turn until each is decided or the time is over."""
    show(f"starting {2 * sides.interpreters} interpreters")
    with ExitStack() as stack:
        progresses = _start_cases(cases, sides, opener, stack)
        show(f"screening {len(cases)} cases")
        end = time.monotonic() + rule.budget * SCREENING_SHARE
        active = [progress for progress in progresses if progress.error is None]
        turn = 0
        while active and (turn < MIN_LAUNCHES or time.monotonic() < end):
            turn += 1
            for progress in active:
                if turn > MIN_LAUNCHES and time.monotonic() >= end:
                    break
                progress.launch()
                if progress.error is None and len(progress.pairs) >= progress.examine_at:
                    progress.examine_at = math.ceil(len(progress.pairs) * LOOK_GROWTH)
                    verdict = judge_ratio(progress.estimate_ratio(), rule.threshold)
                    progress.verdict = None if verdict == "unresolved" else verdict
            active = [progress for progress in active if progress.verdict is None and progress.error is None]
            show(f"screening: round {turn}, {len(cases) - len(active)} of {len(cases)} cases decided")
        for progress in active:  # not decided in time: a suspect if its ratio is beyond the threshold
            progress.verdict = _judge_undecided(progress, rule.threshold)
    return progresses


def _confirm(
    cases: Sequence[GatedCase], sides: GateSides, rule: GateRule, opener: OpenCases, show: Callable[[str], None]
) -> list[CaseProgress]:
    """Measure suspects in new interpreters. A change is reported only if this data alone shows it."""
    confidence = rule.compute_confidence(len(cases))
    with ExitStack() as stack:
        progresses = _start_cases(cases, sides, opener, stack, stage="confirmation", confidence=confidence)
        end = time.monotonic() + rule.budget * (1 - SCREENING_SHARE)
        active = [progress for progress in progresses if progress.error is None]
        for number in range(CONFIRMATION_LAUNCHES[-1]):
            if not active or (number >= CONFIRMATION_LAUNCHES[0] and time.monotonic() >= end):
                break
            for progress in active:
                progress.launch()
                if progress.error is None and len(progress.pairs) in CONFIRMATION_LAUNCHES:
                    verdict = judge_ratio(progress.estimate_ratio(), rule.threshold)
                    progress.verdict = None if verdict == "unresolved" else verdict
            active = [progress for progress in active if progress.verdict is None and progress.error is None]
            show(f"confirming: round {number + 1}, {len(cases) - len(active)} of {len(cases)} cases decided")
        for progress in active:
            within = judge_ratio(progress.estimate_ratio(VERDICT_CONFIDENCE), rule.threshold) == "same"
            progress.verdict = "same" if within else "unresolved"
    return progresses


def _start_cases(
    cases: Sequence[GatedCase], sides: GateSides, opener: OpenCases, stack: ExitStack, **fields: Any
) -> list[CaseProgress]:
    """Start the interpreters of a stage, and check every case on both sides. Starting is not part of the budget."""
    progresses = []
    for gated, source in zip(cases, opener(cases, sides, stack), strict=True):
        progress = CaseProgress(gated=gated, source=source, interpreters=sides.interpreters, **fields)
        try:
            source.check()
        except TesseraError as error:
            progress.error = error
        progresses.append(progress)
    return progresses


def open_sources(cases: Sequence[GatedCase], sides: GateSides, stack: ExitStack) -> list[PairSource]:
    """Start new interpreters of both sides, and return the source of launches of each case."""
    runner: ABRunner | None = None
    if any(gated.feature.callable for gated in cases):
        runner = stack.enter_context(ABRunner(sides.base, sides.head, interpreters=sides.interpreters))
    sources: list[PairSource] = []
    for gated in cases:
        if gated.feature.callable:
            assert runner is not None
            sources.append(BurstPairs(runner=runner, feature=gated.feature, case=gated.case, origins=sides.origins))
        else:
            configs = sides.base, sides.head
            sources.append(MeasuredPairs(configs, gated.feature, gated.case, stack, sides.origins))
    return sources


def _judge_undecided(progress: CaseProgress, threshold: float) -> Verdict:
    """Return the verdict of a case that screening did not decide in time.

    A case whose ratio is beyond the threshold is `slower` or `faster`, and is confirmed later.
    """
    ratio = progress.estimate_ratio()
    if 1 / (1 + threshold) <= ratio.value <= 1 + threshold:
        return judge_ratio(ratio, threshold)
    return "slower" if ratio.value > 1 else "faster"


def _build_result(progress: CaseProgress, rule: GateRule, environment: dict[str, Any]) -> GateResult:
    case = progress.gated.case
    if progress.error is not None:
        record = replace(make_error_record(case, progress.error, unit="ratio"), environment=environment)
        return GateResult(gated=progress.gated, record=record, stage=progress.stage)
    ratio = progress.estimate_ratio()
    times_a, times_b = [pair.time_a for pair in progress.pairs], [pair.time_b for pair in progress.pairs]
    record = Record(
        case=case,
        unit="ratio",
        launches=(
            Samples(
                values=tuple(math.exp(pair.log_ratio) for pair in progress.pairs),
                stopped_by="target" if progress.verdict != "unresolved" else "budget",
                joined_by="head over base, one value per pair of launches",
            ),
        ),
        metrics=make_metrics(
            {
                "ratio": ratio.value,
                "low": ratio.low,
                "high": ratio.high,
                "time_a": median(times_a),
                "time_b": median(times_b),
                "smallest": compute_smallest_effect(ratio, rule.threshold),
            }
        ),
        verdict=progress.verdict,
        environment=environment,
        details={"sides": {"a": times_a, "b": times_b}, "stage": progress.stage, "confidence": progress.confidence},
    )
    return GateResult(gated=progress.gated, record=record, stage=progress.stage)
