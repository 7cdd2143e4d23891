"""Tests of `tessera halo plan`: the table, the picture and the page, and one-line error messages."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tessera.cli.main import main

TABLE = """\
8x8 image over 2 workers, kernel 3x3, padding 1:1x1:1: messages between workers

  from   to   pixels   bytes
 ────────────────────────────
  0      1         8   512 B
  1      0         8   512 B

2 links, 1.00 KiB in all, at most 512 B to one worker
"""


def run_plan(*words: str) -> int:
    return main(["halo", "plan", *words])


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--image-size", "8", "--num-spatial-parts", "2", "--slice-method", "vertical", "--in-channels", "16")
    assert run_plan(*words) == 0
    assert capsys.readouterr().out == TABLE


def test_options_define_the_window(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_plan("--image-size", "32x48", "--kernel", "5x3", "--stride", "2", "--dilation", "1x2", "--json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["image"] == [1, 32, 48]
    assert plan["output"] == [1, 16, 24]
    assert plan["mesh"] == [2, 2]
    top_left = plan["workers"][0]
    assert top_left["reads"] == [[0, 1], [-2, 17], [-2, 25]]
    assert {move["from"]: move["pixels"] for move in top_left["receives"]} == {1: 16, 2: 24, 3: 1}


def test_bytes_count_all_channels_and_samples(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--image-size", "8", "--batch-size", "3", "--in-channels", "5", "--dtype", "bfloat16", "--halo-len", "2")
    assert run_plan(*words, "--csv") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 12
    assert {(row["from"], row["to"]): int(row["bytes"]) for row in rows}["1", "0"] == 3 * 4 * 2 * 5 * 2


def test_the_picture_is_written_and_the_table_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    svg, page = tmp_path / "plan.svg", tmp_path / "plan.html"
    for path in (svg, page):
        assert run_plan("-o", str(path)) == 0
        assert f"picture: {path}" in capsys.readouterr().out
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")
    assert page.read_text().startswith("<!doctype html>")


def test_the_file_suffix_selects_the_format(tmp_path: Path) -> None:
    assert run_plan("-o", str(tmp_path / "plan.json")) == 0
    assert json.loads((tmp_path / "plan.json").read_text())["pixel_bytes"] == 4


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--num-spatial-parts", "0"], "an image is split into 1 part or more, got 0"),
        (
            ["--num-spatial-parts", "6", "--slice-method", "2x2"],
            "2x2 makes 4 parts, not 6; allowed: 1x6, 2x3, 3x2, 6x1",
        ),
        (["--slice-method", "2x1x2"], "2x1x2 splits 3 dims, but the image has 2"),
        (["--image-size", "8x8x8", "-o", "plan.svg"], "plans of volumes are not drawn"),
        (["--slice-method", "diagonal"], "unknown slice method 'diagonal'"),
        (["--image-size", "big"], "not a size: got 'big'"),
        (["--image-size", "1x2x3x4"], "not a size: got '1x2x3x4'"),
        (["--image-size", "0"], "--image-size"),
        (["--image-size", "2", "--num-spatial-parts", "16"], "more parts than the image has pixels along a dim"),
        (["--image-size", "4", "--kernel", "9", "--padding", "0"], "does not fit an image of 4"),
        (["--halo-len", "-1"], "--halo-len: got -1"),
        (["--halo-len", "1", "--kernel", "3"], "both set the kernel size"),
        (["--in-channels", "0"], "--in-channels: got 0"),
        (["--dtype", "int3"], "unknown dtype: got 'int3'"),
        (["--stride", "0"], "--stride"),
        (["--image-size", "512", "--num-spatial-parts", "400", "-o", "plan.svg"], "too many workers for a picture"),
        (["-o", "no/such/place/plan.svg"], "-o: the directory does not exist"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_plan(*words) == 2
    message = capsys.readouterr().err
    assert says in message
    assert message.startswith("tessera: ")
    assert message.count("\n") == 1
