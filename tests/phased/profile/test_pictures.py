"""A pass as a drawing and as a trace: everything that happened is in it, once."""

from __future__ import annotations

import itertools
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.phased.events import Event
from tessera.phased.profile.chrome import chrome_trace
from tessera.phased.profile.pass_profile import PassProfile
from tessera.phased.profile.picture import nice_step, pass_svg
from tests.phased.profile.passes import overlapped, parts


@given(st.lists(st.tuples(st.floats(0, 9), st.floats(0.001, 9)), min_size=1, max_size=12), st.integers(1, 3))
def test_no_thread_of_a_trace_does_two_things_at_once(times, devices):
    events = [
        Event(device=n % devices, phase=0, kind="load", start=start, stop=start + took)
        for n, (start, took) in enumerate(times)
    ]
    trace = chrome_trace({"a": PassProfile.of(events, parts([1.0], [1.0]), 0.0, 20.0)})["traceEvents"]
    done = [one for one in trace if one["ph"] == "X"]
    assert len(done) == len(events)
    for lane in {(one["pid"], one["tid"]) for one in done}:
        own = sorted((one["ts"], one["ts"] + one["dur"]) for one in done if (one["pid"], one["tid"]) == lane)
        assert all(a[1] <= b[0] + 1e-3 for a, b in itertools.pairwise(own))
    named = {(one["pid"], one["tid"]) for one in trace if one["name"] == "thread_name"}
    assert {(one["pid"], one["tid"]) for one in done} <= named


def test_the_drawing_shows_every_stretch_and_all_idle_time():
    seen = overlapped([3.0, 3.0, 3.0], [1.0, 1.0, 1.0], devices=2)
    root = ElementTree.fromstring(pass_svg(seen))
    boxes = [element for element in root.iter() if element.tag.endswith("rect")]
    kinds = {kind: [box for box in boxes if box.get("class") == kind] for kind in ("load", "compute", "idle", "ideal")}
    assert [len(kinds[kind]) for kind in ("load", "compute", "ideal")] == [3, 3, 1]
    scale = float(kinds["load"][0].get("width")) / 3
    idle = sum(float(box.get("width")) for box in kinds["idle"]) / scale
    assert idle == pytest.approx(seen.idle(0) + seen.idle(1), rel=0.01)
    titles = [element.text for element in root.iter() if element.tag.endswith("title")]
    assert any(title.startswith("load of phase 0 (layers.0): 3.00 s") for title in titles)


@given(st.floats(1e-9, 1e4))
def test_ticks_are_round(least):
    step = nice_step(least)
    assert least * 0.999 <= step <= least * 10
