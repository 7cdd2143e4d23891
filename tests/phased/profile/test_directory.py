"""The directory of a profile: what a record carries, what is written, and what happens where nothing can be."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest

from tessera.errors import TesseraError
from tessera.phased.profile.directory import FOLDER, PROFILE, prepared, profile_of, write_profile
from tessera.phased.profile.page import profile_page
from tessera.phased.profile.pass_profile import Part, PassProfile
from tessera.results.record import Case, Record
from tests.phased.profile.passes import drawn, overlapped


def test_a_record_carries_its_pass_and_one_of_another_release_none():
    seen = overlapped(*drawn(), devices=2)
    case = Case(feature="phases", name="chain")
    plain = json.loads(json.dumps(seen.to_json()))
    assert profile_of(Record(case=case, conditions={PROFILE: plain})) == seen
    for other in ({}, {PROFILE: 3}, {PROFILE: {"seconds": 1}}, {PROFILE: plain | {"parts": [["a", 1]]}}):
        assert profile_of(Record(case=case, conditions=other)) is None


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
    with prepared(tmp_path / "new" / "place") as folder:
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
    says = r"cannot write the profile: Not a directory.*--profile-dir"
    with pytest.raises(TesseraError, match=says), prepared(tmp_path / "file"):
        raise AssertionError


def test_a_full_disk_is_an_error_that_says_the_results_are_kept(tmp_path: Path):
    (tmp_path / FOLDER).mkdir()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))  # no file may be longer: the kernel refuses the write
    try:
        says = r"cannot write the profile: File too large.*the results are stored"
        with pytest.raises(TesseraError, match=says), prepared(tmp_path) as folder:
            write_profile({"a": overlapped(*drawn())}, folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(folder.iterdir()) == []


def test_only_what_was_made_and_stays_empty_goes_again(tmp_path: Path):
    with prepared(tmp_path / "new" / "place"):
        assert (tmp_path / "new" / "place" / FOLDER).is_dir()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").mkdir()
    with prepared(tmp_path / "mine"):
        pass
    assert list((tmp_path / "mine").iterdir()) == []
    (tmp_path / FOLDER).mkdir()
    with prepared(tmp_path) as folder:
        pass
    assert folder.is_dir()
