"""Tests of the directory that `--profile` writes: its files, the profile in a record, and write errors."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest

from tessera.errors import TesseraError
from tessera.phased.profile.directory import PROFILE_FOLDER, prepare_directory, write_profile
from tessera.phased.profile.page import build_profile_page
from tessera.phased.profile.pass_profile import PROFILE_KEY, PassProfile, PhaseCost, get_profile
from tessera.results.record import Case, Record
from tests.phased.profile.synthetic_passes import build_overlapped, draw_times


def test_the_profile_of_a_record_is_read_and_invalid_profiles_are_ignored():
    seen = build_overlapped(*draw_times(), devices=2)
    case = Case(feature="phases", name="chain")
    plain = json.loads(json.dumps(seen.to_json()))
    assert get_profile(Record(case=case, details={PROFILE_KEY: plain})) == seen
    for details in ({}, {PROFILE_KEY: 3}, {PROFILE_KEY: {"seconds": 1}}, {PROFILE_KEY: plain | {"parts": [["a", 1]]}}):
        assert get_profile(Record(case=case, details=details)) is None


def test_names_cannot_become_markup(tmp_path: Path):
    seen = build_overlapped([1.0], [1.0])
    wild = PhaseCost(name='<img src=x onerror="alert(1)">', bytes=1, flops=1, load=1.0, compute=1.0)
    page = build_profile_page(
        {"</h2><script>alert(2)</script>": PassProfile(seconds=2.0, phases=(wild,), events=seen.events)}
    )
    assert "<script" not in page
    assert "<img" not in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    assert "default-src 'none'" in page


def test_the_directory_has_a_page_a_trace_and_the_numbers(tmp_path: Path):
    seen = {f"phases/chain[schedule={name}]": build_overlapped(*draw_times()) for name in ("phased", "overlapped")}
    with prepare_directory(tmp_path / "new" / "place") as folder:
        assert folder == tmp_path / "new" / "place" / PROFILE_FOLDER
        written = write_profile(seen, folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in written)
    data = json.loads((folder / "profile.json").read_text())
    for case, profile in seen.items():
        assert data[case]["efficiency"] == pytest.approx(profile.efficiency)
        assert sum(phase["ideal"] for phase in data[case]["phases"]) == pytest.approx(data[case]["ideal"])
        assert len(data[case]["events"]) == len(profile.events)
        assert case.replace(",", ",<wbr>") in (folder / "timeline.html").read_text()
    assert json.loads((folder / "trace.json").read_text())["traceEvents"]


def test_an_unwritable_directory_is_an_error_before_anything_runs(tmp_path: Path):
    (tmp_path / "file").write_text("")
    says = r"cannot write the profile: Not a directory.*--profile-dir"
    with pytest.raises(TesseraError, match=says), prepare_directory(tmp_path / "file"):
        raise AssertionError


def test_a_full_disk_is_an_error_that_says_the_results_are_kept(tmp_path: Path):
    (tmp_path / PROFILE_FOLDER).mkdir()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))  # limits the file size, so that the write fails
    try:
        says = r"cannot write the profile: File too large.*the results are stored"
        with pytest.raises(TesseraError, match=says), prepare_directory(tmp_path) as folder:
            write_profile({"a": build_overlapped(*draw_times())}, folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(folder.iterdir()) == []


def test_only_new_and_empty_directories_are_removed(tmp_path: Path):
    with prepare_directory(tmp_path / "new" / "place"):
        assert (tmp_path / "new" / "place" / PROFILE_FOLDER).is_dir()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").mkdir()
    with prepare_directory(tmp_path / "mine"):
        pass
    assert list((tmp_path / "mine").iterdir()) == []
    (tmp_path / PROFILE_FOLDER).mkdir()
    with prepare_directory(tmp_path) as folder:
        pass
    assert folder.is_dir()
