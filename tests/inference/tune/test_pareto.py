"""Tests that compare the computed Pareto front with the definition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tessera.inference.tune.pareto import FRONT_MARK, find_pareto_front, format_scatter

POINTS = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=30)


@given(POINTS)
def test_exactly_the_dominated_points_are_off_the_front(pairs):
    points = [(index, float(rate), float(latency)) for index, (rate, latency) in enumerate(pairs)]
    front = set(find_pareto_front(points))
    best = {points[index][1:] for index in front}

    def is_beaten(rate: float, latency: float) -> bool:
        return any((r >= rate and lat <= latency) and (r, lat) != (rate, latency) for _, r, lat in points)

    for index, rate, latency in points:
        assert (index in front) == (not is_beaten(rate, latency)) or (rate, latency) in best


@given(st.lists(st.tuples(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3), st.booleans()), min_size=1, max_size=30))
def test_the_plot_has_the_given_size_for_any_points(points):
    lines = format_scatter(points, x_label=lambda x: f"{x:.3g}", y_label=lambda y: f"{y:.3g}", width=40, height=8)
    assert len(lines) == 10
    assert any(FRONT_MARK in line for line in lines) == any(on for _, _, on in points)
