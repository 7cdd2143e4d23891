"""Tests of run plans: a total time budget is divided among the cases."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.measure.samples import Sampling
from tessera.results.record import Case
from tessera.suites.plan import MIN_SAMPLING_SECONDS, RunPlan


@given(st.integers(1, 2000), st.integers(1, 10), st.floats(5, 1e5))
def test_a_divided_budget_covers_all_cases_or_is_the_minimum_per_case(count, launches, budget):
    cases = tuple(Case(feature="ops", name=f"op{n}") for n in range(count))
    plan = RunPlan(cases=cases, sampling=Sampling(budget=1.0), launches=launches, budget=budget).divide_budget()
    assert MIN_SAMPLING_SECONDS <= plan.sampling.budget <= 1.0
    estimate = RunPlan(cases=cases, sampling=plan.sampling, launches=launches).estimate_seconds()
    assert estimate <= budget * (1 + 1e-9) or plan.sampling.budget == MIN_SAMPLING_SECONDS


def test_without_a_budget_nothing_is_divided():
    plan = RunPlan(cases=(Case(feature="ops", name="add"),), sampling=Sampling(budget=0.7))
    assert plan.divide_budget() is plan
    assert plan.estimate_seconds() == pytest.approx(4.0 + 1.0)
