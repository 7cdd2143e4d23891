"""A time for everything, divided over the cases."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.measure.samples import Sampling
from tessera.results.record import Case
from tessera.suites.plan import LEAST, Plan


@given(st.integers(1, 2000), st.integers(1, 10), st.floats(5, 1e5))
def test_a_divided_budget_covers_all_cases_or_leaves_each_the_least(count, launches, budget):
    cases = tuple(Case(feature="ops", name=f"op{n}") for n in range(count))
    plan = Plan(cases=cases, sampling=Sampling(budget=1.0), launches=launches, budget=budget).divided()
    assert LEAST <= plan.sampling.budget <= 1.0
    whole = Plan(cases=cases, sampling=plan.sampling, launches=launches).estimate()
    assert whole <= budget * (1 + 1e-9) or plan.sampling.budget == LEAST


def test_without_a_budget_nothing_is_divided():
    plan = Plan(cases=(Case(feature="ops", name="add"),), sampling=Sampling(budget=0.7))
    assert plan.divided() is plan
    assert plan.estimate() == pytest.approx(4.0 + 1.0)
