import re
from pathlib import Path

import pytest

from tessera.errors import TesseraError
from tessera.report.blocks import Section, Text
from tessera.report.page import page, write_page
from tests.report.synthetic import plausible


def test_a_feature_fills_its_own_section_with_its_own_records() -> None:
    seen = []

    def build(runs):  # type: ignore[no-untyped-def]
        seen.extend(record.case.feature for run in runs for record in run.records)
        return Section("Borders", "", [Text("what the borders cost")])

    text = page([plausible()], {"halo": build})
    assert set(seen) == {"halo"}
    assert '<section id="borders"' in text
    assert "what the borders cost" in text
    assert '<section id="ops"' in text


def test_sections_of_one_title_have_names_of_their_own() -> None:
    text = page([plausible()], {"halo": lambda runs: Section("Summary")})
    assert re.findall(r'<section id="(summary[^"]*)"', text) == ["summary", "summary-2"]


def test_nothing_but_the_written_scripts_may_run_and_nothing_be_fetched() -> None:
    text = page([plausible()], {})
    found = re.search('Content-Security-Policy" content="([^"]*)"', text)
    assert found
    assert found[1].startswith("default-src 'none'")
    assert "unsafe-inline" not in found[1].partition("script-src")[2]
    own = re.sub(r'<script type="text/plain" id="plotly">.*?</script>', "", text, flags=re.DOTALL)
    assert not re.findall(r"(?:src|href)=\"(?!#|data:)", own)
    assert "http" not in re.sub(r'http-equiv="', "", own)


def test_a_page_is_written_whole_and_leaves_nothing_behind(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_text("old")
    write_page("new", target)
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


def test_half_a_character_in_a_stored_string_does_not_stop_the_page(tmp_path: Path) -> None:
    write_page("\ud800 and more", tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text() == "\\ud800 and more"


@pytest.mark.parametrize("place", ["missing/report.html", "directory"])
def test_a_place_that_cannot_be_written_is_one_clear_line(tmp_path: Path, place: str) -> None:
    (tmp_path / "directory").mkdir()
    with pytest.raises(TesseraError, match=r"cannot write the report: .*; give another place with -o"):
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
