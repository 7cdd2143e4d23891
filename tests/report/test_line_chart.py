"""Tests of text charts: they fit their width, and show every level and every value."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.report.line_chart import SPARK_CHARACTERS, draw_line_chart, draw_spark_line

series = st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=300)


@settings(deadline=None)
@given(series, st.integers(30, 200), st.integers(2, 12))
def test_a_chart_fits_its_width_and_marks_every_level(values: list[float], width: int, height: int) -> None:
    middle = len(values) // 2
    levels = [(0, middle, values[0]), (middle, len(values), values[-1])] if middle else [(0, 1, values[0])]
    lines = draw_line_chart(values, levels, width=width, label=lambda value: f"{value:.3g}", height=height)
    assert len(lines) == height + (2 if middle else 1)
    assert max(map(len, lines)) <= width
    assert "".join(lines).count("▲") == len(levels) - 1
    dots = "".join(lines[:height]).count("•")
    assert 1 <= dots <= len(values)
    if len(values) <= width - 20:
        assert dots == len(values)


@settings(deadline=None)
@given(series, st.integers(8, 40))
def test_a_small_chart_has_the_highest_value_on_top_when_values_differ(values: list[float], width: int) -> None:
    line = draw_spark_line(values, width)
    assert 1 <= len(line) <= width
    assert set(line) <= set(SPARK_CHARACTERS)
    if len(values) <= width and max(values) > 1.2 * min(values):
        assert line[values.index(max(values))] == SPARK_CHARACTERS[-1]
        assert line[values.index(min(values))] == SPARK_CHARACTERS[0]
