"""The highest rate that is held: found near the truth of a queue that can be reckoned."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.inference.modes.search import CLOSE, LOWEST, Trial, highest_rate


def server(limit: float, bound: float = 0.1):
    """A server that answers in time up to a rate and then no more."""

    def trial(rate: float) -> Trial:
        took = bound / 2 if rate <= limit else 2 * bound
        return Trial(rate=rate, latencies=(took,) * 100, achieved=rate, bound=bound)

    return trial


@given(st.floats(1, 1000), st.floats(LOWEST * 1.01, 0.999))
def test_the_search_ends_next_to_the_limit(capacity, share):
    limit = share * capacity
    found = highest_rate(server(limit), capacity)
    assert found.best is not None
    assert found.best.rate <= limit
    failed = [trial.rate for trial in found.trials if not trial.held]
    nearest = min([*failed, capacity])
    assert nearest / found.best.rate < CLOSE + 0.05 or len(found.trials) == 12


def test_no_rate_is_held_where_even_one_question_takes_too_long():
    found = highest_rate(server(0.0), 100.0)
    assert found.best is None
    assert all(not trial.held for trial in found.trials)
    assert min(trial.rate for trial in found.trials) >= LOWEST * 100


def test_one_in_a_hundred_may_be_late():
    late = Trial(rate=1.0, latencies=(0.1,) * 991 + (5.0,) * 9, achieved=1.0, bound=0.2)
    too_many = Trial(rate=1.0, latencies=(0.1,) * 970 + (5.0,) * 30, achieved=1.0, bound=0.2)
    assert late.held
    assert not too_many.held
    assert late.latency == pytest.approx(0.1)
