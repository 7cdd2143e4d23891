"""Tests of pass profiles: hidden loading, ideal time, idle time, and clipping of events outside of the pass."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.phased.events import Event
from tessera.phased.profile.pass_profile import PassProfile, PhaseCost
from tessera.phased.profile.spans import find_gaps, measure_overlap, measure_spans, merge_spans
from tests.phased.profile.synthetic_passes import build_costs, build_overlapped, build_sequential, draw_times

SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)).map(lambda pair: (pair[0], sum(pair))), max_size=8)


def list_moments(spans) -> set[int]:
    return {moment for start, end in spans for moment in range(start, end)}


@given(SPANS, SPANS)
def test_span_operations_equal_set_operations(first, second):
    assert measure_spans(first) == len(list_moments(first))
    assert list_moments(merge_spans(first)) == list_moments(first)
    assert measure_overlap(first, second) == len(list_moments(first) & list_moments(second))
    assert list_moments(find_gaps(first, 0, 40)) == set(range(40)) - list_moments(first)


def test_nothing_is_hidden_when_phases_are_loaded_and_then_computed():
    loads, computes = draw_times()
    seen = build_sequential(loads, computes)
    assert seen.seconds == pytest.approx(sum(loads) + sum(computes))
    assert seen.hidden == pytest.approx(0)
    assert seen.get_idle_seconds(0) == pytest.approx(0)
    assert seen.ideal == pytest.approx(sum(map(max, loads, computes)))


def test_equal_loads_are_hidden_except_for_the_first():
    count = random.randrange(2, 20)
    seen = build_overlapped([2.0] * count, [2.0] * count)
    assert seen.hidden == pytest.approx(1 - 1 / count)
    assert seen.efficiency == pytest.approx(count / (count + 1))
    first, later = seen.get_phase_times(0), seen.get_phase_times(1)
    assert (first.hidden, later.hidden) == (pytest.approx(0), pytest.approx(2))


@given(st.floats(-1e3, 1e3), st.integers(1, 3))
def test_times_of_a_pass_start_at_zero(begin, devices):
    loads, computes = [1.0, 2.0, 3.0], [2.0, 1.0, 4.0]
    moved = build_overlapped(loads, computes, devices=devices, begin=begin)
    assert moved.seconds == pytest.approx(build_overlapped(loads, computes).seconds)
    assert min(event.start for event in moved.events) == pytest.approx(0, abs=1e-6)
    assert moved.devices == list(range(min(devices, 3)))


def test_events_outside_of_a_pass_are_clipped():
    events = [
        Event(device=0, phase=0, kind="load", start=-4.0, stop=-1.0, bytes=30),
        Event(device=0, phase=1, kind="load", start=-1.0, stop=3.0, bytes=400),
        Event(device=0, phase=0, kind="compute", start=0.0, stop=10.0),
        Event(device=0, phase=0, kind="load", start=8.0, stop=12.0, bytes=200),
        Event(device=0, phase=1, kind="load", start=12.0, stop=14.0, bytes=400),
    ]
    seen = PassProfile.from_events(events, build_costs([1.0, 1.0], [1.0, 1.0]), 0.0, 10.0)
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
    seen = PassProfile.from_events(events, build_costs([0.0], [1.0]), 0.0, 8.0)
    assert seen.get_idle_seconds(1) == 6
    assert seen.hidden is None
    assert (seen.get_phase_times(0).hand_over, seen.get_phase_times(0).load) == (1, 0)


def test_a_phase_is_bound_by_the_longer_of_load_and_compute():
    slow, quick = random.uniform(2, 3), random.uniform(0, 1)
    loading = PhaseCost(name="a", bytes=10, flops=300, load=slow, compute=quick)
    computing = PhaseCost(name="b", bytes=0, flops=300, load=0.0, compute=slow)
    assert (loading.bound, loading.ideal, loading.flops_per_byte) == ("I/O", slow, 30)
    assert (computing.bound, computing.ideal, computing.flops_per_byte) == ("compute", slow, None)
