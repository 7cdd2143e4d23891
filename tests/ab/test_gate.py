"""Tests of the gate's decision: false alarms over all cases together, and power, on simulated launches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np
import pytest

from tessera.ab.gate import GatedCase, GateRule, GateSides, run_gate
from tessera.ab.pairs import LaunchPair
from tessera.ab.runner import INTERPRETER_SPREAD, INTERPRETERS_PER_SIDE
from tessera.errors import BenchmarkFailed, Refused, TesseraError
from tessera.launch import LaunchConfig
from tessera.results.record import Case
from tessera.suites.features import get_feature

SIDES = GateSides(base=LaunchConfig(), head=LaunchConfig())


@dataclass
class NoisyPairs:
    """Launches with a true log ratio, a random offset per pair of interpreters, noise, and disturbed launches."""

    rng: np.random.Generator
    log_ratio: float
    offsets: np.ndarray = field(init=False)
    error: TesseraError | None = None

    def __post_init__(self) -> None:
        self.offsets = self.rng.normal(0, INTERPRETER_SPREAD, INTERPRETERS_PER_SIDE)

    def check(self) -> None:
        if self.error is not None:
            raise self.error

    def take_pair(self, number: int) -> LaunchPair:
        disturbed = self.rng.choice([0.0, 0.3, -0.3], p=[0.9, 0.05, 0.05])
        log = self.log_ratio + self.offsets[number % len(self.offsets)] + self.rng.normal(0, 0.015) + disturbed
        return LaunchPair(log_ratio=log, time_a=1.0, time_b=math.exp(log))


def gate_simulated(rng: np.random.Generator, ratios: Sequence[float]) -> list[str | None]:
    """Return the verdicts of a gate over simulated cases with the given ratios (head over base)."""
    cases = [
        GatedCase(case=Case(feature="function", name=f"c{n}"), feature=get_feature("function"))
        for n in range(len(ratios))
    ]
    logs = {gated.case.key: math.log(ratio) for gated, ratio in zip(cases, ratios, strict=True)}

    def open_cases(selected: Sequence[GatedCase], sides: GateSides, stack: ExitStack) -> list[NoisyPairs]:
        return [NoisyPairs(rng, logs[gated.case.key]) for gated in selected]

    results = run_gate(cases, SIDES, GateRule(budget=0.1), open_cases=open_cases)
    return [result.record.verdict for result in results]


def test_unchanged_cases_raise_an_alarm_no_more_often_than_asked_for():
    seed = np.random.SeedSequence().entropy
    print("seed", seed)
    rng = np.random.default_rng(seed)
    gates = 60
    alarms = sum(bool({"slower", "faster"} & set(gate_simulated(rng, [1.0] * 20))) for _ in range(gates))
    assert alarms <= 5  # expected at most 0.6; more than 5 has a probability below 1e-4


def test_a_slowdown_of_five_per_cent_among_many_cases_is_found():
    seed = np.random.SeedSequence().entropy
    print("seed", seed)
    rng = np.random.default_rng(seed)
    found = [gate_simulated(rng, [1.05] + [1.0] * 9)[0] for _ in range(20)]
    assert found.count("slower") >= 18


def test_a_speed_up_is_faster():
    assert gate_simulated(np.random.default_rng(3), [0.8, 1.0])[0] == "faster"


def test_a_case_that_only_the_head_can_run_is_refused_and_not_failed():
    case = GatedCase(case=Case(feature="function", name="new"), feature=get_feature("function"))
    rng = np.random.default_rng(0)
    for error, status in ((Refused("new"), "refused"), (BenchmarkFailed("broken"), "failed")):
        (result,) = run_gate(
            [case], SIDES, GateRule(budget=0.1), open_cases=lambda *_, error=error: [NoisyPairs(rng, 0.0, error=error)]
        )
        assert result.record.status == status


@pytest.mark.parametrize("rate", [0.0, 1.0, 2.0])
def test_an_invalid_false_alarm_rate_is_an_error(rate):
    with pytest.raises(TesseraError, match="invalid false-alarm rate"):
        GateRule(false_alarms=rate)
