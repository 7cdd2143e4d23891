"""Tests of `tessera halo scale`: tables, plots, pages, measurements next to predictions, one-line error messages."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tessera.cli.main import main
from tessera.machine.catalogue import save_host
from tessera.measure.environment import compute_host_fingerprint, describe_environment
from tests.spatial.test_cost import make_machine

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True)
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a machine file into a new working directory, with an empty data home."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TESSERA_HOME", str(tmp_path / "home"))
    path = tmp_path / "cluster.toml"
    make_machine(4, flops=1e11).write_file(path)
    return path


def run_scale(*words: str) -> int:
    return main(["halo", "scale", *words])


SMALL_STUDY = (
    "--machine",
    "cluster.toml",
    "--model",
    "resnet18",
    "--image-size",
    "256",
    "--weak",
    "64",
    "--ranks",
    "1,4,16",
)


def test_tables_of_both_scalings(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_scale(*SMALL_STUDY) == 0
    shown = capsys.readouterr().out
    assert "strong scaling: 256x256 image, resnet18, batch 1, float32, training, on A machine" in shown
    assert "weak scaling: 64x64 tile for every rank" in shown
    assert shown.count("100.0%") >= 2
    assert "efficiency of strong scaling, 1 to 16 ranks" in shown


def test_json_and_csv_hold_the_same_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_scale(*SMALL_STUDY, "--json") == 0
    scaling = json.loads(capsys.readouterr().out)
    assert [row["ranks"] for row in scaling["strong"]] == [1, 4, 16]
    assert scaling["strong"][-1]["tile"] == [64, 64]
    assert scaling["weak"][-1]["image"] == [256, 256]
    assert scaling["weak"][-1]["step"] == pytest.approx(scaling["strong"][-1]["step"]), (
        "the same image on the same ranks"
    )
    assert run_scale(*SMALL_STUDY, "--csv") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [float(row["step"]) for row in rows if row["scaling"] == "weak"] == [row["step"] for row in scaling["weak"]]


def test_square_slices_use_square_numbers_of_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_scale(*SMALL_STUDY, "--slice-method", "square", "--json") == 0
    assert [row["ranks"] for row in json.loads(capsys.readouterr().out)["strong"]] == [1, 4, 16]


def test_plot_and_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("plot.svg", "plot.html"):
        assert run_scale(*SMALL_STUDY, "-o", name) == 0
        assert f"plot: {name}" in capsys.readouterr().out
    assert ElementTree.parse(tmp_path / "plot.svg").getroot().tag.endswith("svg")
    assert "Weak scaling" in (tmp_path / "plot.html").read_text()


def test_the_network_between_machines_can_be_set(capsys: pytest.CaptureFixture[str]) -> None:
    make_machine(2, network=False).write_file(Path("small.toml"))
    words = ("--machine", "small.toml", "--model", "resnet18", "--image-size", "128", "--weak", "32", "--ranks", "8")
    assert run_scale(*words) == 2
    assert (
        "made-up has 2 workers, and the bandwidth between machines is unknown: got '8 ranks'" in capsys.readouterr().err
    )
    slow, fast = [], []
    for network, rows in (("1e6,1e-3", slow), ("1e12", fast)):
        assert run_scale(*words, "--network", network, "--json") == 0
        rows += json.loads(capsys.readouterr().out)["strong"]
    assert slow[0]["exchange"] > 100 * fast[0]["exchange"]


PLAN = ("--machine", "cluster.toml", "--model", "resnet18", "--image-size", "64", "--workers", "4", "--batch-size", "4")


def test_a_plan_names_the_fastest_and_the_smallest_split(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_scale(*PLAN, "--optimizer", "adam") == 0
    shown = capsys.readouterr().out
    assert shown == (Path(__file__).parent / "golden" / "halo_scale_plan.txt").read_text()


def test_a_plan_as_json_csv_and_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_scale(*PLAN, "--json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert {split["split"] for split in plan["splits"]} >= {"4 replicas", "2x2 tiles", "2 replicas x 1x2 tiles"}
    assert plan["fastest"] == plan["splits"][0]["split"]
    assert run_scale(*PLAN, "--csv") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [float(row["step"]) for row in rows] == [split["step"] for split in plan["splits"]]
    assert run_scale(*PLAN, "--markdown") == 0
    assert "| split " in capsys.readouterr().out


def test_a_narrow_table_fits_80_columns() -> None:
    from tessera.machine.catalogue import load_machine
    from tessera.report.tables import write_rows
    from tessera.spatial.scaling.plan_table import build_plan_rows, get_columns
    from tessera.spatial.scaling.planner import plan_splits
    from tessera.spatial.scaling.prediction import SplitStep

    plan = plan_splits(SplitStep(model="resnet18", batch=4), (64, 64), 4, load_machine("cluster.toml"))
    stream = io.StringIO()
    write_rows(get_columns(narrow=True), build_plan_rows(plan, narrow=True), "terminal", stream)
    assert max(map(len, stream.getvalue().splitlines())) <= 80


NETS = """
from torch import nn

def make_volume_net():
    return nn.Sequential(nn.Conv3d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv3d(4, 1, 3, padding=1))
"""


def test_volumes_of_a_network_in_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("nets.py").write_text(NETS)
    words = ("--machine", "cluster.toml", "--model", "nets.py:make_volume_net", "--in-channels", "1", "--workers", "4")
    assert run_scale(*words, "--image-size", "16x24x32", "--inference", "--json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["image"] == [16, 24, 32]
    assert {"1x2x2 tiles", "1x1x4 tiles"} <= {split["split"] for split in plan["splits"]}
    assert all(split["memory_activations"] == 0 for split in plan["splits"])
    assert run_scale(*words, "--image-size", "16", "--mesh", "2x1x2", "--json") == 0
    (split,) = json.loads(capsys.readouterr().out)["splits"]
    assert split["tile"] == [8, 16, 8]
    assert run_scale("--machine", "cluster.toml", "--model", "gone.py:net", "--workers", "2") == 2
    assert "no such Python file: got 'gone.py'" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--ranks", "1,2"), ("--measure", "1"), ("--weak", "64")])
def test_options_of_the_tables_do_not_apply_to_a_plan(
    words: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_scale(*PLAN, *words) == 2
    assert f"{words[0]} applies only to the scaling tables" in capsys.readouterr().err


@pytest.mark.ranks
def test_measurements_are_shown_with_their_predictions(capsys: pytest.CaptureFixture[str]) -> None:
    save_host(make_machine(2), compute_host_fingerprint(describe_environment()))
    words = ("--measure", "1,2", "--measure-size", "64", "--model", "resnet18", "--ranks", "1,2", "--weak", "64")
    assert run_scale("--machine", "cluster.toml", *words, "--image-size", "64", "--quick", "--json") == 0
    rows = json.loads(capsys.readouterr().out)["measured"]
    assert [row["ranks"] for row in rows] == [1, 2]
    for row in rows:
        assert row["measured"] > 0
        assert row["error"] == pytest.approx(row["predicted"] / row["measured"] - 1)
    assert rows[0]["error_of_scaling"] == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--ranks", "0"], "invalid numbers of ranks: got '0'"),
        (["--ranks", "8..2"], "invalid numbers of ranks"),
        (["--ranks", "many"], "invalid numbers of ranks"),
        (["--machine", "wormhole-n15"], "did you mean wormhole-n150"),
        (["--machine", "gone.toml"], "file not found"),
        (["--machine", "host"], "this host is not calibrated"),
        (["--model", "resnet5"], "did you mean resnet50"),
        (["--image-size", "0"], "images must have one pixel or more along each dim"),
        (["--image-size", "8x8x8x8"], "not a size: got '8x8x8x8'"),
        (["--workers", "0"], "--workers: got 0"),
        (["--mesh", "2x2"], "--mesh applies only to --workers"),
        (["--optimizer", "lion"], "unknown optimizer: got 'lion'"),
        (["--image-size", "4", "--ranks", "64"], "the mesh has more parts than the image has pixels along a dim"),
        (["--batch-size", "0"], "--batch-size: got 0"),
        (["--dtype", "float64"], "made-up has no FLOP/s for this dtype: got 'float64'; allowed: float32"),
        (["--slice-method", "square", "--ranks", "2,8"], "no number of ranks is a square"),
        (["--slice-method", "diagonal"], "unknown slice method: got 'diagonal'"),
        (["--network", "fast"], "invalid bandwidth and latency: got 'fast'"),
        (["--measure", "1", "--measure-size", "64"], "this host is not calibrated"),
        (["--weak", "0"], "--weak: got 0"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"--machine": "cluster.toml", "--model": "resnet18", "--image-size": "64", "--ranks": "1,2"}
    options |= dict(zip(words[::2], words[1::2], strict=True))
    assert run_scale(*(word for pair in options.items() for word in pair)) == 2
    message = capsys.readouterr().err
    assert says in message
    assert message.startswith("tessera: ")
    assert message.count("\n") == 1
