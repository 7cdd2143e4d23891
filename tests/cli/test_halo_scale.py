"""`tessera halo scale`: tables, plots, pages, measurements beside predictions, and one line for every mistake."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tessera.cli.main import main
from tessera.machine.hosts import save_host
from tessera.measure.environment import environment, host_fingerprint
from tests.spatial.test_predict import machine

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True)
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory and a data home of its own, and a machine file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TESSERA_HOME", str(tmp_path / "home"))
    path = tmp_path / "cluster.toml"
    machine(4, flops=1e11).write(path)
    return path


def scale(*words: str) -> int:
    return main(["halo", "scale", *words])


SMALL = ("--machine", "cluster.toml", "--model", "resnet18", "--image-size", "512", "--weak", "128", "--ranks", "1..16")


def test_tables_of_both_scalings(capsys: pytest.CaptureFixture[str]) -> None:
    assert scale(*SMALL) == 0
    shown = capsys.readouterr().out
    assert "strong scaling: 512x512 image, resnet18, batch 1, float32, on A machine" in shown
    assert "weak scaling: 128x128 tile for every rank" in shown
    assert shown.count("100.0%") >= 2
    assert "efficiency of strong scaling, 1 to 16 ranks" in shown


def test_json_and_csv_hold_the_same_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert scale(*SMALL, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["ranks"] for row in found["strong"]] == [1, 2, 4, 8, 16]
    assert found["strong"][-1]["tile"] == [128, 128]
    assert found["weak"][-1]["image"] == [512, 512]
    assert found["weak"][-1]["step"] == pytest.approx(found["strong"][-1]["step"]), "the same image on the same ranks"
    assert scale(*SMALL, "--csv") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [float(row["step"]) for row in rows if row["scaling"] == "weak"] == [row["step"] for row in found["weak"]]


def test_a_square_cut_takes_the_ranks_that_make_squares(capsys: pytest.CaptureFixture[str]) -> None:
    assert scale(*SMALL, "--slice-method", "square", "--json") == 0
    assert [row["ranks"] for row in json.loads(capsys.readouterr().out)["strong"]] == [1, 4, 16]


def test_plot_and_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("plot.svg", "plot.html"):
        assert scale(*SMALL, "-o", name) == 0
        assert f"plot: {name}" in capsys.readouterr().out
    assert ElementTree.parse(tmp_path / "plot.svg").getroot().tag.endswith("svg")
    assert "Weak scaling" in (tmp_path / "plot.html").read_text()


def test_a_network_can_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    machine(2, network=False).write(Path("small.toml"))
    words = ("--machine", "small.toml", "--model", "resnet18", "--image-size", "128", "--weak", "32", "--ranks", "8")
    assert scale(*words) == 2
    assert (
        "made-up has 2 workers, and no figure for a network between machines: got '8 ranks'" in capsys.readouterr().err
    )
    slow, fast = [], []
    for network, found in (("1e6,1e-3", slow), ("1e12", fast)):
        assert scale(*words, "--network", network, "--json") == 0
        found += json.loads(capsys.readouterr().out)["strong"]
    assert slow[0]["exchange"] > 100 * fast[0]["exchange"]


@pytest.mark.ranks
def test_measurements_stand_beside_their_prediction(capsys: pytest.CaptureFixture[str]) -> None:
    save_host(machine(2), host_fingerprint(environment()))
    words = ("--measure", "1,2", "--measure-size", "64", "--model", "resnet18", "--ranks", "1,2", "--weak", "64")
    assert scale("--machine", "cluster.toml", *words, "--image-size", "64", "--quick", "--json") == 0
    found = json.loads(capsys.readouterr().out)["measured"]
    assert [row["ranks"] for row in found] == [1, 2]
    for row in found:
        assert row["measured"] > 0
        assert row["error"] == pytest.approx(row["predicted"] / row["measured"] - 1)
    assert found[0]["error_of_scaling"] == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--ranks", "0"], "not numbers of ranks: got '0'"),
        (["--ranks", "8..2"], "not numbers of ranks"),
        (["--ranks", "many"], "not numbers of ranks"),
        (["--machine", "wormhole-n15"], "did you mean wormhole-n150"),
        (["--machine", "gone.toml"], "no such file"),
        (["--machine", "host"], "this host is not calibrated"),
        (["--model", "resnet5"], "did you mean resnet50"),
        (["--image-size", "0"], "--image-size: got 0"),
        (["--image-size", "4", "--ranks", "64"], "the image is smaller than the mesh"),
        (["--batch-size", "0"], "--batch-size: got 0"),
        (["--dtype", "float64"], "made-up has no FLOP/s for this dtype: got 'float64'; allowed: float32"),
        (["--slice-method", "square", "--ranks", "2,8"], "none of these makes a square"),
        (["--slice-method", "diagonal"], "invalid choice: 'diagonal'"),
        (["--network", "fast"], "not a network: got 'fast'"),
        (["--measure", "1", "--measure-size", "64"], "this host is not calibrated"),
        (["--weak", "0"], "--weak: got 0"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = {"--machine": "cluster.toml", "--model": "resnet18", "--image-size": "64", "--ranks": "1,2"}
    given |= dict(zip(words[::2], words[1::2], strict=True))
    assert scale(*(word for pair in given.items() for word in pair)) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.startswith("tessera: ")
    assert said.count("\n") == 1
