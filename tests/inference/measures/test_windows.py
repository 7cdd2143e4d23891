"""Windows of replicas: only the time that all of them share counts, to the fraction of a batch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.inference.measures.windows import Stretch, Window


@st.composite
def stretches(draw: st.DrawFn) -> Stretch:
    """Batches of one replica, one after the other without a gap."""
    begin = draw(st.integers(0, 10**9))
    lengths = draw(st.lists(st.integers(10**6, 10**9), min_size=1, max_size=12))
    marks = [begin]
    for length in lengths:
        marks.append(marks[-1] + length)
    return Stretch(begun=tuple(marks[:-1]), ended=tuple(marks[1:]), cpu=draw(st.integers(0, 10**9)))


@given(stretches(), st.integers(0, 2 * 10**9), st.integers(0, 2 * 10**9))
def test_batches_are_counted_by_their_share_of_an_interval(stretch, a, b):
    start, end = min(a, b), max(a, b)
    expected = 0.0
    for begun, ended in zip(stretch.begun, stretch.ended, strict=True):
        covered = set_length(begun, ended, start, end)
        expected += covered / (ended - begun)
    assert stretch.batches_within(start, end) == pytest.approx(expected)
    assert stretch.batches_within(stretch.first, stretch.last) == pytest.approx(len(stretch.begun))


def set_length(a: int, b: int, c: int, d: int) -> int:
    return max(0, min(b, d) - max(a, c))


@given(stretches(), st.integers(1, 64))
def test_one_replica_has_the_whole_window_to_itself(stretch, batch):
    window = Window(batch=batch, stretches=(stretch,))
    assert window.seconds == pytest.approx(stretch.wall / 1e9)
    assert window.rate == pytest.approx(batch * len(stretch.begun) / window.seconds)
    assert len(window.latencies) == len(stretch.begun)


@given(st.lists(stretches(), min_size=2, max_size=4))
def test_the_common_window_is_within_every_replicas_own(several):
    window = Window(batch=8, stretches=tuple(several))
    assert window.start == max(one.first for one in several)
    assert window.end == min(one.last for one in several)
    if window.seconds <= 0:
        return
    assert window.rate == pytest.approx(sum(window.rates))
    for stretch, rate in zip(several, window.rates, strict=True):
        assert rate * window.seconds <= 8 * len(stretch.begun) * (1 + 1e-9)


def test_a_replica_that_goes_on_alone_adds_nothing_after_the_others_end():
    second = 10**9
    short = Stretch(begun=(0,), ended=(second,))
    long = Stretch(begun=(0, second, 2 * second), ended=(second, 2 * second, 3 * second))
    both = Window(batch=4, stretches=(short, long))
    assert both.rates == (4.0, 4.0)
    assert both.latencies == (1.0, 1.0)


def test_batches_in_flight_may_end_in_another_order():
    flying = Stretch(begun=(0, 1, 2), ended=(40, 20, 30))
    assert (flying.first, flying.last, flying.wall) == (0, 40, 40)


def test_cores_in_use_are_summed_over_replicas():
    busy = Stretch(begun=(0,), ended=(100,), cpu=100)
    half = Stretch(begun=(0,), ended=(100,), cpu=50)
    assert Window(batch=1, stretches=(busy, half)).utilisation == pytest.approx(1.5)
