"""Tests of the drawing and the trace of a pass: both contain every event once."""

from __future__ import annotations

import itertools
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.phased.events import Event
from tessera.phased.profile.chrome import build_chrome_trace
from tessera.phased.profile.pass_profile import PassProfile
from tessera.phased.profile.picture import draw_pass, round_up_step
from tests.phased.profile.synthetic_passes import build_costs, build_overlapped


@given(st.lists(st.tuples(st.floats(0, 9), st.floats(0.001, 9)), min_size=1, max_size=12), st.integers(1, 3))
def test_events_of_a_thread_do_not_overlap_in_a_trace(times, devices):
    events = [
        Event(device=n % devices, phase=0, kind="load", start=start, stop=start + took)
        for n, (start, took) in enumerate(times)
    ]
    trace = build_chrome_trace({"a": PassProfile.from_events(events, build_costs([1.0], [1.0]), 0.0, 20.0)})[
        "traceEvents"
    ]
    done = [event for event in trace if event["ph"] == "X"]
    assert len(done) == len(events)
    for lane in {(event["pid"], event["tid"]) for event in done}:
        own = sorted(
            (event["ts"], event["ts"] + event["dur"]) for event in done if (event["pid"], event["tid"]) == lane
        )
        assert all(a[1] <= b[0] + 1e-3 for a, b in itertools.pairwise(own))
    named = {(event["pid"], event["tid"]) for event in trace if event["name"] == "thread_name"}
    assert {(event["pid"], event["tid"]) for event in done} <= named


def test_the_drawing_shows_every_event_and_all_idle_time():
    seen = build_overlapped([3.0, 3.0, 3.0], [1.0, 1.0, 1.0], devices=2)
    root = ElementTree.fromstring(draw_pass(seen))
    boxes = [element for element in root.iter() if element.tag.endswith("rect")]
    kinds = {kind: [box for box in boxes if box.get("class") == kind] for kind in ("load", "compute", "idle", "ideal")}
    assert [len(kinds[kind]) for kind in ("load", "compute", "ideal")] == [3, 3, 1]
    scale = float(kinds["load"][0].get("width")) / 3
    idle = sum(float(box.get("width")) for box in kinds["idle"]) / scale
    assert idle == pytest.approx(seen.get_idle_seconds(0) + seen.get_idle_seconds(1), rel=0.01)
    titles = [element.text for element in root.iter() if element.tag.endswith("title")]
    assert any(title.startswith("load of phase 0 (layers.0): 3.00 s") for title in titles)


@given(st.floats(1e-9, 1e4))
def test_ticks_are_round(least):
    step = round_up_step(least)
    assert least * 0.999 <= step <= least * 10
