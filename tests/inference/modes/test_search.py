"""The highest rate that is held: found near the truth of a queue that can be reckoned."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.errors import BenchmarkFailed
from tessera.inference.modes.search import CLOSE, LOWEST, Trial, highest_rate


def server(limit: float, bound: float = 0.1):
    """A server that answers in time up to a rate and then no more."""

    def trial(rate: float) -> Trial:
        took = bound / 2 if rate <= limit else 2 * bound
        latencies = (bound / 2, *(took,) * 99)  # the first one waits for nobody
        return Trial(rate=rate, latencies=latencies, achieved=rate, bound=bound)

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


def test_no_rate_is_held_where_questions_are_late_at_all_of_them():
    found = highest_rate(server(0.0), 100.0)
    assert found.best is None
    assert all(not trial.held for trial in found.trials)
    assert min(trial.rate for trial in found.trials) >= LOWEST * 100


def test_one_trial_is_enough_where_even_the_quickest_answer_is_late():
    def trial(rate: float) -> Trial:
        return Trial(rate=rate, latencies=(0.11, 0.3, 0.2), achieved=rate, bound=0.1)

    found = highest_rate(trial, 100.0)
    assert found.best is None
    assert len(found.trials) == 1


def test_a_trial_that_fails_ends_the_search_and_those_before_it_are_kept():
    sound, asked = server(60.0), []

    def trial(rate: float) -> Trial:
        asked.append(rate)
        if len(asked) == 3:
            raise BenchmarkFailed("rank 0 of 1 died of SIGKILL")
        return sound(rate)

    found = highest_rate(trial, 100.0)
    assert [one.rate for one in found.trials] == asked[:2] == [50.0, 75.0]
    assert found.best is not None
    assert found.best.rate == 50.0
    assert "SIGKILL" in str(found.error)


def test_one_in_a_hundred_may_be_late():
    late = Trial(rate=1.0, latencies=(0.1,) * 991 + (5.0,) * 9, achieved=1.0, bound=0.2)
    too_many = Trial(rate=1.0, latencies=(0.1,) * 970 + (5.0,) * 30, achieved=1.0, bound=0.2)
    assert late.held
    assert not too_many.held
    assert late.latency == pytest.approx(0.1)
