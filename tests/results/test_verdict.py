"""Verdicts on runs with a known truth: launches scatter by 1 %, calls have heavy upper tails."""

from collections import Counter

import numpy as np
import pytest

from tessera.results.compare import Comparison, compare
from tessera.results.verdict import Judgement, Pair, benjamini_hochberg, judge
from tests.results.synthetic import measured


@pytest.fixture
def rng() -> np.random.Generator:
    seed = np.random.SeedSequence().entropy
    print(f"seed {seed}")
    return np.random.default_rng(seed)


def planted(
    rng: np.random.Generator,
    changes: list[float],
    *,
    launches: int = 5,
    noise: float | np.ndarray = 0.01,
    threshold: float = 0.03,
    direction: str = "lower",
) -> Comparison:
    """Run B against run A, where the level of case i changed by changes[i]."""
    levels = np.exp(rng.uniform(np.log(1e-6), np.log(1e-1), len(changes)))
    noises = np.broadcast_to(noise, len(changes))
    a, b = (
        [
            measured(
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


def figures(change: float, launches: int, rng: np.random.Generator) -> Pair:
    """The figures themselves, where nothing but the launches matters."""
    before, after = np.exp(rng.normal(0, 0.01, (2, launches)))
    return Pair(before=tuple(before), after=tuple(after * (1 + change)), direction="lower")


def count(comparison: Comparison, first: int = 0, last: int | None = None) -> Counter[str]:
    return Counter(case.verdict for case in comparison.cases[first:last])


def test_identical_runs_raise_no_alarm(rng: np.random.Generator) -> None:
    verdicts = count(planted(rng, [0.0] * 1000))
    assert verdicts["faster"] + verdicts["slower"] <= 1
    assert verdicts["same"] > 900


@pytest.mark.parametrize("launches", [2, 5])
def test_no_threshold_and_still_few_alarms(rng: np.random.Generator, launches: int) -> None:
    """Without the threshold's help, false alarms are as few as alpha promises: next to none."""
    verdicts = count(planted(rng, [0.0] * 1000, launches=launches, threshold=0.0))
    assert verdicts["faster"] + verdicts["slower"] <= 3


@pytest.mark.parametrize(("change", "verdict"), [(0.10, "slower"), (-0.10, "faster")])
@pytest.mark.parametrize("launches", [3, 5])
def test_ten_percent_is_found(rng: np.random.Generator, change: float, verdict: str, launches: int) -> None:
    comparison = planted(rng, [change] * 100 + [0.0] * 900, launches=launches)
    assert count(comparison, 0, 100)[verdict] > 95
    unchanged = count(comparison, 100)
    assert unchanged["faster"] + unchanged["slower"] <= 5


def test_higher_is_better_turns_the_verdict(rng: np.random.Generator) -> None:
    comparison = planted(rng, [0.10] * 10 + [-0.10] * 10 + [0.0] * 30, direction="higher")
    assert count(comparison, 0, 10) == {"faster": 10}
    assert count(comparison, 10, 20) == {"slower": 10}
    assert all(case.judgement.ratio > 1 for case in comparison.cases[:10])


def test_less_than_the_threshold_is_not_called(rng: np.random.Generator) -> None:
    for change, least in ((0.01, "same"), (0.02, "unresolved")):
        verdicts = count(planted(rng, [change] * 300 + [0.0] * 700), 0, 300)
        assert verdicts["slower"] + verdicts["faster"] <= 1
        assert verdicts[least] > 100


def test_at_the_threshold_itself_nearly_all_is_unresolved(rng: np.random.Generator) -> None:
    verdicts = count(planted(rng, [0.03] * 300 + [0.0] * 700), 0, 300)
    assert verdicts["slower"] <= 5
    assert verdicts["unresolved"] > 270


def test_the_interval_holds_the_truth(rng: np.random.Generator) -> None:
    comparison = planted(rng, [0.10] * 400 + [0.0] * 400)
    truth = [1.1] * 400 + [1.0] * 400
    held = [c.judgement.low <= t <= c.judgement.high for c, t in zip(comparison.cases, truth, strict=True)]
    assert 0.92 < np.mean(held) < 0.98


def test_the_smallest_effect_is_called_four_times_in_five(rng: np.random.Generator) -> None:
    def judged(change: float) -> Judgement:
        unchanged = [figures(0.0, 5, rng) for _ in range(199)]
        return judge([figures(change, 5, rng), *unchanged], threshold=0.03, alpha=0.05)[0]

    smallest = float(np.median([judged(0.0).smallest for _ in range(9)]))
    called = sum(judged(smallest).verdict == "slower" for _ in range(100))
    assert 60 <= called <= 95


@pytest.mark.parametrize("launches", [3, 5])
def test_noisy_cases_among_calm_ones_raise_no_alarm(rng: np.random.Generator, launches: int) -> None:
    """3 % of the cases scatter ten times more: they must not borrow calm from the others."""
    noise = np.where(np.arange(1000) < 30, 0.1, 0.01)
    verdicts = count(planted(rng, [0.0] * 1000, noise=noise, launches=launches))
    assert verdicts["faster"] + verdicts["slower"] <= 1


def test_cases_of_every_noise_raise_no_alarm(rng: np.random.Generator) -> None:
    noise = 0.01 * np.exp(rng.normal(0, 1, 1000))
    verdicts = count(planted(rng, [0.0] * 1000, noise=noise, launches=3))
    assert verdicts["faster"] + verdicts["slower"] <= 1


def test_one_launch_alone_says_nothing(rng: np.random.Generator) -> None:
    comparison = planted(rng, [1.0, 0.0], launches=1)
    assert count(comparison) == {"unresolved": 2}
    judgement = comparison.cases[0].judgement
    assert "--launches 5" in judgement.why
    assert judgement.low is judgement.high is judgement.smallest is judgement.p is None
    assert judgement.ratio == pytest.approx(2, rel=0.2)


def test_one_launch_learns_from_cases_with_several(rng: np.random.Generator) -> None:
    pairs = [figures(0.3, 1, rng), *(figures(0.0, 5, rng) for _ in range(30))]
    judgements = judge(pairs, threshold=0.03, alpha=0.05)
    assert judgements[0].verdict == "slower"


@pytest.mark.parametrize("threshold", [0.0, 0.03])
def test_figures_that_never_vary(threshold: float) -> None:
    """Counts and bytes have no spread: any change beyond the threshold is real, equality is equality."""
    pairs = [Pair(before=(8.0,) * 3, after=(after,) * 3, direction="lower") for after in (8.0, 9.0, 7.0)]
    verdicts = [judgement.verdict for judgement in judge(pairs, threshold=threshold, alpha=0.05)]
    assert verdicts == ["same", "slower", "faster"]


def test_adjusted_probabilities_agree_with_scipy(rng: np.random.Generator) -> None:
    from scipy.stats import false_discovery_control

    p = rng.random(100) ** 3
    assert benjamini_hochberg(p) == pytest.approx(false_discovery_control(p))
    assert len(benjamini_hochberg(np.array([]))) == 0
