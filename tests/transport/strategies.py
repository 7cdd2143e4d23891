"""Hypothesis strategy for exchange problems."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.geometry.strategies import plans
from tests.transport.checks import Problem


@st.composite
def problems(draw: st.DrawFn, workers: int | None = None) -> Problem:
    return Problem(
        plan=draw(plans(workers)),
        seed=draw(st.integers(0, 2**31)),
        channels=draw(st.integers(1, 3)),
        dtype=draw(st.sampled_from(["float32", "float64"])),
        channels_last=draw(st.booleans()),
        fill=draw(st.sampled_from([0.0, float("-inf")])),
    )
