"""Tests of the report page: sections of features, the content security policy, and writing of the file."""

import re
from pathlib import Path

import pytest

from tessera.errors import TesseraError
from tessera.report.blocks import Section, Text
from tessera.report.page import build_page, write_page
from tests.report.synthetic import make_plausible_run


def test_a_feature_builds_its_section_from_its_own_records() -> None:
    features = []

    def build(runs):  # type: ignore[no-untyped-def]
        features.extend(record.case.feature for run in runs for record in run.records)
        return Section("Borders", "", [Text("what the borders cost")])

    text = build_page([make_plausible_run()], {"halo": build})
    assert set(features) == {"halo"}
    assert '<section id="borders"' in text
    assert "what the borders cost" in text
    assert '<section id="ops"' in text


def test_sections_with_the_same_title_have_unique_ids() -> None:
    text = build_page([make_plausible_run()], {"halo": lambda runs: Section("Summary")})
    assert re.findall(r'<section id="(summary[^"]*)"', text) == ["summary", "summary-2"]


def test_the_policy_allows_only_the_scripts_of_the_page_and_no_requests() -> None:
    text = build_page([make_plausible_run()], {})
    policy = re.search('Content-Security-Policy" content="([^"]*)"', text)
    assert policy
    assert policy[1].startswith("default-src 'none'")
    assert "unsafe-inline" not in policy[1].partition("script-src")[2]
    own = re.sub(r'<script type="text/plain" id="plotly">.*?</script>', "", text, flags=re.DOTALL)
    assert not re.findall(r"(?:src|href)=\"(?!#|data:)", own)
    assert "http" not in re.sub(r'http-equiv="', "", own)


def test_a_page_is_replaced_atomically_without_leftover_files(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_text("old")
    write_page("new", target)
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


def test_a_lone_surrogate_is_escaped(tmp_path: Path) -> None:
    write_page("\ud800 and more", tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text() == "\\ud800 and more"


@pytest.mark.parametrize("place", ["missing/report.html", "directory"])
def test_an_unwritable_path_is_a_one_line_error(tmp_path: Path, place: str) -> None:
    (tmp_path / "directory").mkdir()
    with pytest.raises(TesseraError, match=r"cannot write the page: .*; name another file with -o"):
        write_page("text", tmp_path / place)
    assert [path.name for path in tmp_path.iterdir()] == ["directory"]


def test_a_device_is_never_replaced() -> None:
    with pytest.raises(TesseraError, match="is not a file"):
        write_page("text", Path("/dev/null"))
    assert Path("/dev/null").is_char_device()


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    link = tmp_path / "latest.html"
    link.symlink_to("real.html")
    write_page("text", link)
    assert link.is_symlink()
    assert (tmp_path / "real.html").read_text() == "text"
