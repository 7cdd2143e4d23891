"""Tests of verdicts on runs with known changes: launches vary by 1 %, times of calls have heavy upper tails."""

from collections import Counter

import numpy as np
import pytest

from tessera.results.compare import Comparison, compare
from tessera.results.judgement import Judgement, ValuePair, benjamini_hochberg, judge_pairs
from tests.results.synthetic import make_measured_record


@pytest.fixture
def rng() -> np.random.Generator:
    seed = np.random.SeedSequence().entropy
    print(f"seed {seed}")
    return np.random.default_rng(seed)


def compare_known_changes(
    rng: np.random.Generator,
    changes: list[float],
    *,
    launches: int = 5,
    noise: float | np.ndarray = 0.01,
    threshold: float = 0.03,
    direction: str = "lower",
) -> Comparison:
    """Compare run B with run A, where the level of case i changed by changes[i]."""
    levels = np.exp(rng.uniform(np.log(1e-6), np.log(1e-1), len(changes)))
    noises = np.broadcast_to(noise, len(changes))
    a, b = (
        [
            make_measured_record(
                f"op{i}",
                float(level * (1 + shift)),
                rng,
                launches=launches,
                noise=float(n),
                direction=direction,
            )
            for i, (level, shift, n) in enumerate(zip(levels, shifts, noises, strict=True))
        ]
        for shifts in ([0.0] * len(changes), changes)
    )
    return compare(a, b, threshold=threshold)


def draw_pair(change: float, launches: int, rng: np.random.Generator) -> ValuePair:
    """Draw the values of the launches of one case directly, without samples."""
    before, after = np.exp(rng.normal(0, 0.01, (2, launches)))
    return ValuePair(before=tuple(before), after=tuple(after * (1 + change)), direction="lower")


def count_verdicts(comparison: Comparison, first: int = 0, last: int | None = None) -> Counter[str]:
    return Counter(case.verdict for case in comparison.cases[first:last])


def test_identical_runs_raise_no_alarm(rng: np.random.Generator) -> None:
    verdicts = count_verdicts(compare_known_changes(rng, [0.0] * 1000))
    assert verdicts["faster"] + verdicts["slower"] <= 1
    assert verdicts["same"] > 900


@pytest.mark.parametrize("launches", [2, 5])
def test_a_threshold_of_zero_keeps_the_false_alarm_rate_below_alpha(rng: np.random.Generator, launches: int) -> None:
    """With a threshold of 0, the rate of false alarms is at most alpha."""
    verdicts = count_verdicts(compare_known_changes(rng, [0.0] * 1000, launches=launches, threshold=0.0))
    assert verdicts["faster"] + verdicts["slower"] <= 3


@pytest.mark.parametrize(("change", "verdict"), [(0.10, "slower"), (-0.10, "faster")])
@pytest.mark.parametrize("launches", [3, 5])
def test_a_change_of_ten_per_cent_is_detected(
    rng: np.random.Generator, change: float, verdict: str, launches: int
) -> None:
    comparison = compare_known_changes(rng, [change] * 100 + [0.0] * 900, launches=launches)
    assert count_verdicts(comparison, 0, 100)[verdict] > 95
    unchanged = count_verdicts(comparison, 100)
    assert unchanged["faster"] + unchanged["slower"] <= 5


def test_higher_is_better_reverses_the_verdict(rng: np.random.Generator) -> None:
    comparison = compare_known_changes(rng, [0.10] * 10 + [-0.10] * 10 + [0.0] * 30, direction="higher")
    assert count_verdicts(comparison, 0, 10) == {"faster": 10}
    assert count_verdicts(comparison, 10, 20) == {"slower": 10}
    assert all(case.judgement.ratio > 1 for case in comparison.cases[:10])


def test_changes_below_the_threshold_are_not_reported(rng: np.random.Generator) -> None:
    for change, least in ((0.01, "same"), (0.02, "unresolved")):
        verdicts = count_verdicts(compare_known_changes(rng, [change] * 300 + [0.0] * 700), 0, 300)
        assert verdicts["slower"] + verdicts["faster"] <= 1
        assert verdicts[least] > 100


def test_changes_equal_to_the_threshold_are_nearly_all_unresolved(rng: np.random.Generator) -> None:
    verdicts = count_verdicts(compare_known_changes(rng, [0.03] * 300 + [0.0] * 700), 0, 300)
    assert verdicts["slower"] <= 5
    assert verdicts["unresolved"] > 270


def test_coverage_of_the_interval(rng: np.random.Generator) -> None:
    comparison = compare_known_changes(rng, [0.10] * 400 + [0.0] * 400)
    truth = [1.1] * 400 + [1.0] * 400
    held = [c.judgement.low <= t <= c.judgement.high for c, t in zip(comparison.cases, truth, strict=True)]
    assert 0.92 < np.mean(held) < 0.98


def test_the_smallest_detectable_effect_is_detected_four_times_in_five(rng: np.random.Generator) -> None:
    def judge_change(change: float) -> Judgement:
        unchanged = [draw_pair(0.0, 5, rng) for _ in range(199)]
        return judge_pairs([draw_pair(change, 5, rng), *unchanged], threshold=0.03, alpha=0.05)[0]

    smallest = float(np.median([judge_change(0.0).smallest for _ in range(9)]))
    called = sum(judge_change(smallest).verdict == "slower" for _ in range(100))
    assert 60 <= called <= 95


@pytest.mark.parametrize("launches", [3, 5])
def test_a_few_noisy_cases_raise_no_alarm(rng: np.random.Generator, launches: int) -> None:
    """3 % of the cases have ten times the spread; their variances must not be shrunk to the typical variance."""
    noise = np.where(np.arange(1000) < 30, 0.1, 0.01)
    verdicts = count_verdicts(compare_known_changes(rng, [0.0] * 1000, noise=noise, launches=launches))
    assert verdicts["faster"] + verdicts["slower"] <= 1


def test_cases_with_different_noise_raise_no_alarm(rng: np.random.Generator) -> None:
    noise = 0.01 * np.exp(rng.normal(0, 1, 1000))
    verdicts = count_verdicts(compare_known_changes(rng, [0.0] * 1000, noise=noise, launches=3))
    assert verdicts["faster"] + verdicts["slower"] <= 1


def test_a_single_launch_is_unresolved(rng: np.random.Generator) -> None:
    comparison = compare_known_changes(rng, [1.0, 0.0], launches=1)
    assert count_verdicts(comparison) == {"unresolved": 2}
    judgement = comparison.cases[0].judgement
    assert "--launches 5" in judgement.why
    assert judgement.low is judgement.high is judgement.smallest is judgement.p is None
    assert judgement.ratio == pytest.approx(2, rel=0.2)


def test_a_single_launch_uses_the_variance_of_cases_with_several(rng: np.random.Generator) -> None:
    pairs = [draw_pair(0.3, 1, rng), *(draw_pair(0.0, 5, rng) for _ in range(30))]
    judgements = judge_pairs(pairs, threshold=0.03, alpha=0.05)
    assert judgements[0].verdict == "slower"


@pytest.mark.parametrize("threshold", [0.0, 0.03])
def test_values_without_variance(threshold: float) -> None:
    """Values without variance, such as byte counts: any change beyond the threshold is reported, equal is `same`."""
    pairs = [ValuePair(before=(8.0,) * 3, after=(after,) * 3, direction="lower") for after in (8.0, 9.0, 7.0)]
    verdicts = [judgement.verdict for judgement in judge_pairs(pairs, threshold=threshold, alpha=0.05)]
    assert verdicts == ["same", "slower", "faster"]


def test_adjusted_probabilities_agree_with_scipy(rng: np.random.Generator) -> None:
    from scipy.stats import false_discovery_control

    p = rng.random(100) ** 3
    assert benjamini_hochberg(p) == pytest.approx(false_discovery_control(p))
    assert len(benjamini_hochberg(np.array([]))) == 0
