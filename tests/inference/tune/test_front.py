"""The Pareto front against the definition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tessera.inference.tune.front import front
from tessera.inference.tune.scatter import FRONT, scatter

POINTS = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=30)


@given(POINTS)
def test_nothing_on_the_front_is_beaten_and_everything_else_is(pairs):
    points = [(index, float(rate), float(latency)) for index, (rate, latency) in enumerate(pairs)]
    found = set(front(points))
    best = {points[index][1:] for index in found}

    def beaten(rate: float, latency: float) -> bool:
        return any((r >= rate and lat <= latency) and (r, lat) != (rate, latency) for _, r, lat in points)

    for index, rate, latency in points:
        assert (index in found) == (not beaten(rate, latency)) or (rate, latency) in best


@given(st.lists(st.tuples(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3), st.booleans()), min_size=1, max_size=30))
def test_the_plot_has_its_size_whatever_the_points(points):
    lines = scatter(points, x_label=lambda x: f"{x:.3g}", y_label=lambda y: f"{y:.3g}", width=40, height=8)
    assert len(lines) == 10
    assert any(FRONT in line for line in lines) == any(on for _, _, on in points)
