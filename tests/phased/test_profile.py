"""A pass taken apart: hidden time, the ideal, idle devices; and the directory that shows it."""

from __future__ import annotations

import itertools
import json
import random
import resource
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.errors import TesseraError
from tessera.phased.events import Event
from tessera.phased.profile.chrome import chrome_trace
from tessera.phased.profile.directory import FOLDER, PROFILE, prepare, profile_of, write_profile
from tessera.phased.profile.page import profile_page
from tessera.phased.profile.pass_profile import Part, PassProfile
from tessera.phased.profile.picture import nice_step, pass_svg
from tessera.phased.profile.spans import gaps, length, merged, shared
from tessera.results.record import Case, Record
from tests.phased.passes import drawn, overlapped, parts, sequential

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


def test_a_record_carries_its_pass_and_one_of_another_release_none():
    seen = overlapped(*drawn(), devices=2)
    case = Case(feature="phases", name="chain")
    plain = json.loads(json.dumps(seen.to_json()))
    assert profile_of(Record(case=case, conditions={PROFILE: plain})) == seen
    for other in ({}, {PROFILE: 3}, {PROFILE: {"seconds": 1}}, {PROFILE: plain | {"parts": [["a", 1]]}}):
        assert profile_of(Record(case=case, conditions=other)) is None


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


def test_names_cannot_become_markup(tmp_path: Path):
    seen = overlapped([1.0], [1.0])
    wild = Part(name='<img src=x onerror="alert(1)">', bytes=1, flops=1, load=1.0, compute=1.0)
    page = profile_page({"</h2><script>alert(2)</script>": PassProfile(seconds=2.0, parts=(wild,), events=seen.events)})
    assert "<script" not in page
    assert "<img" not in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    assert "default-src 'none'" in page


def test_the_directory_has_a_page_a_trace_and_the_numbers(tmp_path: Path):
    seen = {f"phases/chain[schedule={name}]": overlapped(*drawn()) for name in ("phased", "overlapped")}
    folder = prepare(tmp_path / "new" / "place")
    assert folder == tmp_path / "new" / "place" / FOLDER
    written = write_profile(seen, folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in written)
    data = json.loads((folder / "profile.json").read_text())
    for case, profile in seen.items():
        assert data[case]["efficiency"] == pytest.approx(profile.efficiency)
        assert sum(phase["ideal"] for phase in data[case]["phases"]) == pytest.approx(data[case]["ideal"])
        assert len(data[case]["events"]) == len(profile.events)
        assert case.replace(",", ",<wbr>") in (folder / "timeline.html").read_text()
    assert json.loads((folder / "trace.json").read_text())["traceEvents"]


def test_a_place_that_cannot_be_written_is_an_error_before_anything_runs(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TesseraError, match=r"cannot write the profile: Not a directory.*--profile-dir"):
        prepare(tmp_path / "file")


def test_a_full_disk_is_an_error_that_says_the_results_are_kept(tmp_path: Path):
    folder = prepare(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))  # no file may be longer: the kernel refuses the write
    try:
        with pytest.raises(TesseraError, match=r"cannot write the profile: File too large.*the results are stored"):
            write_profile({"a": overlapped(*drawn())}, folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(folder.iterdir()) == []
