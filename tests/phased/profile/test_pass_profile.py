"""A pass taken apart: hidden time, the ideal, idle devices, what belongs to its neighbours."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.phased.events import Event
from tessera.phased.profile.pass_profile import Part, PassProfile
from tessera.phased.profile.spans import gaps, length, merged, shared
from tests.phased.profile.passes import drawn, overlapped, parts, sequential

SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)).map(lambda pair: (pair[0], sum(pair))), max_size=8)


def moments(spans) -> set[int]:
    return {moment for start, end in spans for moment in range(start, end)}


@given(SPANS, SPANS)
def test_spans_are_sets_of_moments(one, other):
    assert length(one) == len(moments(one))
    assert moments(merged(one)) == moments(one)
    assert shared(one, other) == len(moments(one) & moments(other))
    assert moments(gaps(one, 0, 40)) == set(range(40)) - moments(one)


def test_nothing_is_hidden_when_phases_are_loaded_and_then_computed():
    loads, computes = drawn()
    seen = sequential(loads, computes)
    assert seen.seconds == pytest.approx(sum(loads) + sum(computes))
    assert seen.hidden == pytest.approx(0)
    assert seen.idle(0) == pytest.approx(0)
    assert seen.ideal == pytest.approx(sum(map(max, loads, computes)))


def test_equal_loads_and_computes_are_hidden_but_for_the_first():
    count = random.randrange(2, 20)
    seen = overlapped([2.0] * count, [2.0] * count)
    assert seen.hidden == pytest.approx(1 - 1 / count)
    assert seen.efficiency == pytest.approx(count / (count + 1))
    first, later = seen.figures(0), seen.figures(1)
    assert (first.hidden, later.hidden) == (pytest.approx(0), pytest.approx(2))


@given(st.floats(-1e3, 1e3), st.integers(1, 3))
def test_a_pass_begins_at_zero_whenever_it_was(begin, devices):
    loads, computes = [1.0, 2.0, 3.0], [2.0, 1.0, 4.0]
    moved = overlapped(loads, computes, devices=devices, begin=begin)
    assert moved.seconds == pytest.approx(overlapped(loads, computes).seconds)
    assert min(event.start for event in moved.events) == pytest.approx(0, abs=1e-6)
    assert moved.devices == list(range(min(devices, 3)))


def test_what_lies_outside_of_a_pass_belongs_to_its_neighbours():
    events = [
        Event(device=0, phase=0, kind="load", start=-4.0, stop=-1.0, bytes=30),
        Event(device=0, phase=1, kind="load", start=-1.0, stop=3.0, bytes=400),
        Event(device=0, phase=0, kind="compute", start=0.0, stop=10.0),
        Event(device=0, phase=0, kind="load", start=8.0, stop=12.0, bytes=200),
        Event(device=0, phase=1, kind="load", start=12.0, stop=14.0, bytes=400),
    ]
    seen = PassProfile.of(events, parts([1.0, 1.0], [1.0, 1.0]), 0.0, 10.0)
    assert [(e.kind, e.phase, e.start, e.stop, e.bytes) for e in seen.events] == [
        ("load", 1, 0.0, 3.0, 300),
        ("compute", 0, 0.0, 10.0, 0),
        ("load", 0, 8.0, 10.0, 100),
    ]
    assert seen.hidden == 1


def test_waiting_is_idle():
    events = [
        Event(device=1, phase=0, kind="wait", start=0.0, stop=6.0),
        Event(device=1, phase=0, kind="hand-over", start=6.0, stop=7.0, bytes=5),
        Event(device=1, phase=0, kind="compute", start=7.0, stop=8.0),
    ]
    seen = PassProfile.of(events, parts([0.0], [1.0]), 0.0, 8.0)
    assert seen.idle(1) == 6
    assert seen.hidden is None
    assert (seen.figures(0).hand_over, seen.figures(0).load) == (1, 0)


def test_a_phase_is_bound_by_the_longer_of_both():
    slow, quick = random.uniform(2, 3), random.uniform(0, 1)
    loading = Part(name="a", bytes=10, flops=300, load=slow, compute=quick)
    computing = Part(name="b", bytes=0, flops=300, load=0.0, compute=slow)
    assert (loading.bound, loading.ideal, loading.flops_per_byte) == ("I/O", slow, 30)
    assert (computing.bound, computing.ideal, computing.flops_per_byte) == ("compute", slow, None)
