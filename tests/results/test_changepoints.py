"""Tests of change points: planted changes are detected at the right run; noise and outliers are not reported."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tessera.results.changepoints import MIN_RUNS, find_change_points

RUN_COUNT = 60


def draw_values(
    rng: np.random.Generator, levels: np.ndarray, noise: float, *, outliers: float = 0.05, jump: float = 0.3
) -> list[float]:
    """Draw one value per run, as on a shared machine: normal noise, and occasional slow outliers."""
    values = levels * (1 + rng.normal(0, noise, len(levels)))
    values[rng.random(len(levels)) < outliers] *= 1 + jump
    return [float(value) for value in values]


def make_step(count: int, start: int, ratio: float) -> np.ndarray:
    return np.where(np.arange(count) < start, 1e-3, 1e-3 * ratio)


@pytest.mark.parametrize("noise", [0.01, 0.015, 0.02, 0.03])
def test_noise_with_outliers_raises_false_alarms_in_at_most_two_per_cent_of_series(noise: float) -> None:
    rng = np.random.default_rng(int(noise * 1000))
    alarms = [bool(find_change_points(draw_values(rng, np.full(RUN_COUNT, 1e-3), noise))) for _ in range(500)]
    assert np.mean(alarms) <= 0.02


@pytest.mark.parametrize("count", [MIN_RUNS, 10, 20, 200])
def test_the_length_of_a_series_does_not_raise_alarms(count: int) -> None:
    rng = np.random.default_rng(count)
    alarms = [bool(find_change_points(draw_values(rng, np.full(count, 2.0), 0.02))) for _ in range(300)]
    assert np.mean(alarms) <= 0.02


@pytest.mark.parametrize("outliers", [0.0, 0.05])
@pytest.mark.parametrize("ratio", [1.05, 1 / 1.05])
def test_a_step_of_five_per_cent_is_detected_at_its_run(outliers: float, ratio: float) -> None:
    rng = np.random.default_rng(5)
    detections = []
    for _ in range(300):
        start = int(rng.integers(6, RUN_COUNT - 6))
        shifts = find_change_points(draw_values(rng, make_step(RUN_COUNT, start, ratio), 0.015, outliers=outliers))
        detections.append(len(shifts) == 1 and abs(shifts[0].start - start) <= 3)
    assert np.mean(detections) >= 0.95


@pytest.mark.parametrize(("runs", "share"), [(2, 0.8), (3, 0.95)])
def test_a_new_step_is_detected_after_two_or_three_runs(runs: int, share: float) -> None:
    rng = np.random.default_rng(runs)
    detections = []
    for _ in range(200):
        shifts = find_change_points(draw_values(rng, make_step(RUN_COUNT, RUN_COUNT - runs, 1.2), 0.015, outliers=0.0))
        detections.append([shift.start for shift in shifts] == [RUN_COUNT - runs])
    assert np.mean(detections) >= share


@given(
    st.lists(st.tuples(st.integers(6, 12), st.sampled_from([1.0, 1.1, 1.3, 2.0])), min_size=1, max_size=4),
    st.floats(1e-9, 1e9),
)
@settings(max_examples=60, deadline=None)
def test_levels_without_noise_are_detected_exactly_in_any_unit(parts: list[tuple[int, float]], unit: float) -> None:
    levels = [level for _, level in parts]
    assume(all(before != after for before, after in itertools.pairwise(levels)))
    values = [unit * level for length, level in parts for _ in range(length)]
    shifts = find_change_points(values)
    ends = np.cumsum([length for length, _ in parts])[:-1].tolist()
    assert [shift.start for shift in shifts] == ends
    assert [shift.after for shift in shifts] == pytest.approx([unit * level for level in levels[1:]])


@given(st.integers(0, 2**32 - 1), st.floats(1e-6, 1e6))
@settings(max_examples=40, deadline=None)
def test_the_unit_of_the_values_does_not_matter(seed: int, unit: float) -> None:
    values = np.array(draw_values(np.random.default_rng(seed), make_step(40, 25, 1.08), 0.02))
    assert [s.start for s in find_change_points(values)] == [s.start for s in find_change_points(unit * values)]


def test_a_change_of_values_without_noise_is_detected_after_two_runs() -> None:
    (shift,) = find_change_points([4096.0] * 20 + [8192.0] * 2)
    assert (shift.start, shift.before, shift.after, shift.change) == (20, 4096, 8192, 1)


def test_a_single_outlier_is_no_change() -> None:
    for place in (0, 11, 19):
        values = [1.0, 1.01, 0.99, 1.005] * 5
        values[place] = 3.0
        assert find_change_points(values) == ()


def test_consecutive_outliers_are_no_change_if_outliers_are_frequent() -> None:
    calm = [1.0, 1.01, 0.99, 1.005] * 10
    assert [shift.start for shift in find_change_points([*calm, 1.3, 1.3])] == [40]
    disturbed = list(calm)
    disturbed[::9] = [1.3] * len(disturbed[::9])
    assert find_change_points([*disturbed, 1.3, 1.3]) == ()


def test_a_change_below_the_threshold_is_not_reported() -> None:
    values = [1.0, 1.001, 0.999] * 10 + [1.02, 1.021, 1.019] * 10
    assert find_change_points(values) == ()
    (shift,) = find_change_points(values, threshold=0.01)
    assert shift.change == pytest.approx(0.02)


def test_a_change_and_its_fix_are_two_changes() -> None:
    values = [1.0, 1.01, 0.99] * 6 + [1.4, 1.41, 1.39] * 3 + [1.0, 1.01, 0.99] * 6
    assert [(shift.start, round(shift.change, 2)) for shift in find_change_points(values)] == [(18, 0.4), (27, -0.29)]


def test_a_change_within_the_error_of_the_launches_is_dropped() -> None:
    values = [1.0, 1.001, 0.999] * 4 + [1.06, 1.061, 1.059] * 2
    assert len(find_change_points(values, errors=[0.005] * len(values))) == 1
    assert find_change_points(values, errors=[0.05] * len(values)) == ()


def test_too_few_runs_are_not_judged() -> None:
    assert find_change_points([1.0] * (MIN_RUNS - 1)) == ()
    assert find_change_points([]) == ()
