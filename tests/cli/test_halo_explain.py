"""Tests of `tessera halo explain`: rows of a network on shapes alone and with values, volumes, one-line errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tessera.cli.main import main
from tessera.models import build
from tessera.spatial.parallel_model import parallelize
from tessera.transport.in_process import run_ranks

pytestmark = pytest.mark.timeout(120)

NETS = """
from torch import nn

class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)

    def forward(self, x):
        x = self.conv(x)
        return x.relu() if x.sum() > 0 else x.sigmoid()

def make_volume_net():
    return nn.Sequential(nn.Conv3d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv3d(4, 1, 3, padding=1))
"""


@pytest.fixture(autouse=True)
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(NETS)


def explain(*words: str, capsys: pytest.CaptureFixture[str]) -> dict[str, list[dict[str, object]]]:
    assert main(["halo", "explain", *words, "--json"]) == 0
    values: dict[str, list[dict[str, object]]] = json.loads(capsys.readouterr().out)
    return values


def test_shapes_alone_explain_as_a_real_run_does(capsys: pytest.CaptureFixture[str]) -> None:
    shown = explain("resnet18", "--image-size", "64", "--mesh", "2x2", capsys=capsys)
    model, image = build("resnet18"), torch.zeros(1, 3, 64, 64)
    real = run_ranks(4, lambda t: parallelize(model, "2x2", transport=t, broadcast=False).explain(image))[0]
    assert shown == json.loads(json.dumps(real.to_dict()))


def test_an_image_that_no_machine_holds(capsys: pytest.CaptureFixture[str]) -> None:
    rows = explain("resnet18", "--image-size", "1000000", "--mesh", "4x4", capsys=capsys)["rows"]
    assert rows[0]["operator"] == "convolution"


def test_volumes(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("nets.py:make_volume_net", "--in-channels", "1", "--mesh", "2x1x2")
    for size in ("16x8x16", "16"):
        rows = explain(*words, "--image-size", size, capsys=capsys)["rows"]
        assert [row["operator"] for row in rows] == ["convolution", "relu", "convolution"]
        assert all(row["computed"] == "split" for row in rows)


def test_a_network_that_needs_values_runs_with_values(capsys: pytest.CaptureFixture[str]) -> None:
    rows = explain("nets.py:Branching", "--in-channels", "1", "--image-size", "16", capsys=capsys)["rows"]
    assert rows[0]["operator"] == "convolution"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["resnet5"], "did you mean resnet50"),
        (
            ["resnet18", "--image-size", "2", "--mesh", "4x4"],
            "more parts than the image has pixels along a dim: got '2x2 pixels over 4x4 ranks'",
        ),
        (["resnet18", "--image-size", "0"], "images must have one pixel or more along each dim"),
        (["resnet18", "--mesh", "0x2"], "not a mesh: got '0x2'"),
        (["resnet18", "--mesh", "100x100", "--image-size", "1000"], "too many ranks for one process: got 10000"),
        (["resnet18", "--in-channels", "1"], "cannot be run on shapes of this image alone"),
        (["nets.py:Branching", "--in-channels", "1", "--image-size", "1000000"], "cannot be run on shapes"),
        (["gone.py:net"], "no such Python file: got 'gone.py'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["halo", "explain", *words]) == 2
    message = capsys.readouterr().err
    assert says in message
    assert message.count("\n") == 1
