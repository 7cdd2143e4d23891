"""Tests of `tessera conv`: plans, pictures, tables, real execution, and one-line error messages."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tessera.cli.main import main

pytestmark = pytest.mark.timeout(120)
SMALL_CONVOLUTION = ("--image-size", "14", "--in-channels", "64", "--out-channels", "64")


def test_help_has_examples(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["conv", "--help"])
    shown = capsys.readouterr().out
    assert "examples:" in shown
    assert "--act-block-h-override" in shown


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--kernel", "9", "--image-size", "4", "--padding", "0"], "does not fit an image of 4"),
        (["--image-size", "big"], "not a size"),
        (["--machine", "wormhol"], "did you mean"),
        (["--shard-layout", "DEPTH"], "unknown shard layout: got 'DEPTH'"),
        (["--grid", "12x12", "--shard-layout", "HEIGHT", "--plan-only"], "larger than wormhole-n150"),
        (["--in-channels", "30", "--groups", "4"], "divisible by groups"),
        (["--act-block-h-override", "40"], "multiple of 32"),
        (["--padding", "1,2"], "TOP,BOTTOM,LEFT,RIGHT"),
        (["--table", "resnet5"], "did you mean resnet50"),
        (["--table", "resnet50", "--kernel", "3"], "shape parameters cannot be combined with `table`"),
        (["--layers", "conv1"], "`layers` requires `table`"),
        (["--sweep", "grids=1x1"], "did you mean grid"),
        (["--sweep", "grid=1x1", "--grid", "1x1"], "--grid is given twice"),
        (["--sweep", "grid"], "OPTION=A,B"),
        (["--table", "resnet50", "--picture", "a.svg"], "--picture and --trace apply only to one convolution"),
        ([*SMALL_CONVOLUTION, "--plan-only", "--picture", "a.gif"], "ends in .svg or .html"),
        (["--network", "resnet50", "--kernel", "3"], "--kernel applies only to conv2d: got 'network'"),
        (["--network", "vgg11", "--image-size", "16x32"], "does not accept images of 16x32"),
        (["--import", "missing.csv"], "the profile cannot be read"),
        (["--image-size", "28", "--sweep", "in-channels=32,64", "--emit", "ttnn"], "--emit applies only to one"),
        (["--list", "--emit", "json"], "cannot be combined with"),
        (["--network", "resnet50", "--batch-size", "-1"], "must be positive"),
        (["--network", "resnet50", "--sweep", "image-size=128;224"], "--network plans only one case"),
        (["--network", "resnet50", "--picture", "p.html", "--list", "--table", "vgg11"], "--table, --list"),
        (["--list", "--trace", "t.json"], "cannot be combined with"),
        (["--table", "resnet50", "--batch-size", "-1"], "must be positive"),
        (["--table", "vgg16", "--image-size", "16"], "does not accept images of 16x16"),
        ([*SMALL_CONVOLUTION, "--picture", "p.png", "--quick"], "ends in .svg or .html"),
    ],
)
def test_a_mistake_is_one_line(words, says, capsys):
    assert main(["conv", *words]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert says in err


def test_a_plan_as_text(capsys):
    assert main(["conv", "--image-size", "56", "--batch-size", "8", "--plan-only"]) == 0
    shown = capsys.readouterr().out
    for word in ("plan ", "blocks ", "fit ", "memory ", "bytes ", "time ", "candidates", "the chip's default rule"):
        assert word in shown


def test_a_layout_that_does_not_fit_says_what_would_help(capsys):
    words = ["--image-size", "112", "--batch-size", "8", "--shard-layout", "HEIGHT", "--plan-only"]
    assert main(["conv", *words]) == 0
    shown = capsys.readouterr().out
    assert "HEIGHT does not fit: needs" in shown
    assert "saves" in shown


def test_plans_as_json_and_csv(capsys):
    words = ["--sweep", "shard-layout=HEIGHT,BLOCK", *SMALL_CONVOLUTION, "--plan-only"]
    assert main(["conv", *words, "--json"]) == 0
    plans = json.loads(capsys.readouterr().out)
    assert [plan["layout"] for plan in plans] == ["HEIGHT", "BLOCK"]
    assert all(plan["high_water"] <= plan["have"] for plan in plans)
    assert main(["conv", *words, "--csv"]) == 0
    assert len(list(csv.DictReader(capsys.readouterr().out.splitlines()))) == 2


def test_a_table_of_plans(capsys):
    assert main(["conv", "--table", "resnet50", "--shard-layout", "auto", "--plan-only"]) == 0
    shown = capsys.readouterr().out
    assert "layer1.0.conv2" in shown
    assert shown.count("yes") + shown.count(" no ") >= 23


def test_pictures_and_a_trace(capsys):
    words = ["conv", *SMALL_CONVOLUTION, "--plan-only", "--shard-layout", "HEIGHT"]
    assert main([*words, "--picture", "plan.svg", "--trace", "plan.json"]) == 0
    assert ElementTree.parse("plan.svg").getroot().tag.endswith("svg")
    assert json.loads(Path("plan.json").read_text())["traceEvents"]
    assert main([*words, "--picture", "plan.html"]) == 0
    assert "<svg" in Path("plan.html").read_text()
    assert "picture: plan.html" in capsys.readouterr().err


def test_json_output_stays_valid_with_a_picture_and_a_trace(capsys):
    words = ["conv", *SMALL_CONVOLUTION, "--json", "--picture", "plan.svg", "--trace", "plan.json"]
    for more in (["--plan-only"], ["--iterations", "1", "--launches", "1"]):
        assert main([*words, *more]) == 0
        assert json.loads(capsys.readouterr().out)
        for drawn in ("plan.svg", "plan.json"):
            Path(drawn).unlink()


def test_a_setting_of_one_layout_does_not_stop_the_others(capsys):
    assert main(["conv", "--act-block-w-div", "2", "--plan-only"]) == 0
    assert "candidates" in capsys.readouterr().out


def test_cases_are_listed(capsys):
    assert main(["conv", "--table", "resnet50", "--layers", "conv1,layer1.0.conv2", "--list"]) == 0
    assert capsys.readouterr().out.count("conv/conv2d[") == 2


def test_a_convolution_is_executed_and_compared_with_torch(capsys):
    words = [
        "--image-size",
        "12",
        "--in-channels",
        "32",
        "--out-channels",
        "32",
        "--iterations",
        "2",
        "--launches",
        "1",
    ]
    assert main(["conv", *words, "--dtype", "float32", "--weights-dtype", "float32"]) == 0
    shown = capsys.readouterr().out
    assert "1.000000" in shown
    assert "stored as run" in shown


def test_a_refused_case_is_a_usage_error(capsys):
    words = ["--image-size", "112", "--batch-size", "8", "--shard-layout", "HEIGHT", "--quick"]
    assert main(["conv", *words]) == 2
    assert "HEIGHT does not fit" in capsys.readouterr().out


@pytest.mark.slow
def test_a_network(capsys):
    assert main(["conv", "--network", "resnet50", "--batch-size", "16"]) == 0
    shown = capsys.readouterr().out
    assert "images/s predicted" in shown
    assert "published for batch 16: 6,335 images/s on the device" in shown
    assert main(["conv", "--network", "resnet18", "--batch-size", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["published"] is None
