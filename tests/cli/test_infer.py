"""`tessera infer` as a user types it: sweeps, replicas, tuning, operators, and one line for every mistake."""

from __future__ import annotations

import csv
import json
import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from tessera.cli.infer_values import latency, sizes
from tessera.cli.main import main
from tessera.errors import TesseraError
from tessera.results.store import Store
from tests.cli.typed import tessera

pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).parents[2]
SMALL = ("--model", "tests.inference.small:classifier", "--image-size", "32", "--engine", "torch-eager")
BRIEF = ("--iterations", "3", "--warmup", "1")


def infer(*words: str):
    """The command with this repository's own networks at hand."""
    return tessera("infer", *words, env=os.environ | {"PYTHONPATH": str(ROOT)})


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "no network named"),
        (["--model", "resnet51"], "did you mean resnet50"),
        (["--model", "resnet50", "--batch-size", "0"], "--batch-size: got 0"),
        (["--model", "resnet50", "--batch-size", "many"], "not a list of sizes"),
        (["--model", "resnet50", "--batch-size", "8..2"], "not a range of sizes"),
        (["--model", "resnet50", "--batch-size", "all"], "--batch-size all is of a config"),
        (["--model", "resnet50", "--engine", "onnxruntme"], "did you mean onnxruntime"),
        (["--model", "resnet50", "--precision", "7.7"], "unknown --precision"),
        (["--model", "resnet50", "--engine", "torch-eager", "--precision", "int8"], "does not compute in int8"),
        (["--model", "resnet50", "--num-replicas", "0"], "--num-replicas: got 0"),
        (["--model", "resnet50", "--num-replicas", "1000"], "--force to run them all the same"),
        (["--model", "resnet50", "--num-instances", "2", "--num-replicas", "4"], "every replica is a process"),
        (["--model", "resnet50", "--numa-aware", "maybe"], "not yes or no"),
        (["--model", "resnet50", "-x", "NOT_SET_ANYWHERE"], "not set"),
        (["--model", "resnet50", "--data", "nowhere"], "--data is where the images come from"),
        (["--model", "resnet50", "--mode", "server"], "add --max-latency"),
        (["--model", "resnet50", "--max-latency", "50ms"], "--max-latency is of --mode server"),
        (["--model", "resnet50", "--mode", "server", "--max-latency", "50"], "not a latency"),
        (["--model", "resnet50", "--iterations", "0"], "iterations is too small"),
        (["--model", "resnet50", "--launches", "0"], "--launches: got 0"),
        (["--model", "resnet50", "--by-operator", "--top", "0"], "--top: got 0"),
        (["--model", "resnet50", "--top", "3"], "--top is of --by-operator"),
        (["--model", "resnet50", "--goal", "latency"], "--goal is of --tune"),
        (["--model", "resnet50", "--tune-time", "1min"], "--tune-time is of --tune"),
        (["--model", "resnet50", "--load-generator", "tessera"], "--load-generator is of --mode server"),
        (["--model", "resnet50", "--iterations", "3", "--budget", "5s"], "no use for --budget"),
        (
            ["--model", "resnet50", "--engine", "openvino", "--streams", "2", "--mode", "single-stream"],
            "--streams are batches at a time",
        ),
        (["--config", "resnet5"], "did you mean resnet50"),
        (["--model", "resnet50", "--by-operator", "--num-replicas", "2"], "looks into one replica"),
        (["--model", "resnet50", "--tune", "--mode", "server", "--max-latency", "1s"], "--tune has no use for --mode"),
        (["--model", "resnet50,resnet18", "--tune"], "--tune takes one model"),
        (["--model", "resnet50", "--tune", "--resume"], "no use for --resume"),
        (["--model", "resnet50", "--tune", "--list"], "no use for --list"),
        (["--model", "resnet50", "--tune", "--launches", "3"], "no use for --launches"),
        (["--model", "resnet50", "--tune", "--precision", "7.7"], "unknown --precision"),
        (["--model", "resnet50", "--tune", "--num-replicas", "1000"], "--force to run them all the same"),
        (["--model", "resnet50", "--tune", "--engine", "torch-eager,onnxruntime", "--precision", "int8"], "int8"),
        (["--model", "nowhere.onnx"], "no such ONNX file: got 'nowhere.onnx'"),
        (["--model", "resnet50", "--tune", "--tune-time", "soon"], "not a duration"),
        (["--model", "resnet50", "--engine", ""], "--engine names nothing"),
        (["--model", "resnet50", "--tune", "--engine", ""], "--engine names nothing"),
        (["--model", ",", "--tune"], "--model names nothing"),
        (["--model", "resnet50", "--precision", ","], "--precision names nothing"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words, says, capsys):
    assert main(["infer", *words]) == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert captured.err.startswith("tessera: ")
    assert captured.err.count("\n") == 1
    assert captured.out == ""


@pytest.mark.skipif(find_spec("timm") is not None, reason="timm is installed")
def test_a_network_of_timm_without_timm_names_the_extra(capsys):
    assert main(["infer", "--model", "timm/resnet50"]) == 2
    assert capsys.readouterr().err == "tessera: timm is not installed: pip install 'tessera[timm]'\n"


def test_a_job_of_somebody_else_is_refused(monkeypatch, capsys):
    for name, value in (("OMPI_COMM_WORLD_SIZE", "2"), ("OMPI_COMM_WORLD_RANK", "0")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TESSERA_WORKER", raising=False)
    assert main(["infer", "--model", "resnet50"]) == 2
    assert "replicas are started by Tessera, not by mpiexec" in capsys.readouterr().err


def test_sizes_and_latencies_are_read():
    assert sizes("1,2,4..80") == [1, 2, 4, 8, 16, 32, 64, 80]
    assert sizes("3..7:2,8,8") == [3, 5, 7, 8]
    assert sizes("5..5") == [5]
    assert latency("250us") == pytest.approx(0.00025)
    for text in ("", ",", "1..", "1...4", "a", "0..4", "1..9:0", "1..99999:1"):
        with pytest.raises(TesseraError):
            sizes(text)


def test_choices_and_cases_are_listed(capsys):
    assert main(["infer", "--list"]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("resnet50", "efficientnet-b4", "onnxruntime", "single-stream"))
    words = ("--config", "resnext101", "--batch-size", "all", "--precision", "32.32", "--engine", "torch-eager")
    assert main(["infer", *words, "--list", "--json"]) == 0
    keys = [row["case"] for row in json.loads(capsys.readouterr().out)]
    assert len(keys) == 5
    assert all(key.startswith("infer/resnext101_32x8d[") for key in keys)


@pytest.mark.parametrize(
    ("config", "io_tiles", "more"),
    [
        ("resnet50-mk2", "64", ()),
        ("efficientnet-b0-mk2", "64", ()),
        ("efficientnet-b4-mk2", "0", ()),
        (
            "",
            "32",
            (
                *("--model", "resnext101_32x8d", "--device-iterations", "128", "--norm-type", "batch"),
                *("--precision", "16.16", "--half-partial", "--eight-bit-io", "--normalization-location", "ipu"),
            ),
        ),
    ],
)
def test_command_lines_as_for_poprun_are_understood(config, io_tiles, more, capsys, monkeypatch):
    monkeypatch.setenv("POPLAR_RUNTIME_OPTIONS", "{}")
    words = ("--num-instances=4", "--numa-aware=yes", "--num-replicas=4", "--ipus-per-replica=1", "--tag-output")
    words += ("-x", "POPLAR_RUNTIME_OPTIONS", "--data", "generated", "--batch-size", "1", "--iterations", "20")
    words += ("--num-io-tiles", io_tiles, "--force", *(("--config", config) if config else ()), *more)
    assert main(["infer", *words, "--list", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert "num_replicas=4" in row["case"]
    assert 'precision="16.16"' in row["case"]


def test_a_sweep_is_stored_and_shown_and_becomes_a_page():
    sides = ("--batch-size", "1,2", "--num-replicas", "2", "--force", "--device-iterations", "50")
    done = infer(*SMALL, *sides, *BRIEF, "--run-name", "one")
    assert done.returncode == 0, done.stderr
    assert "images/s" in done.stdout
    assert "scaling" in done.stdout
    assert "stored as run one" in done.stdout
    with Store() as store:
        found = list(store.records(store.run("one")))
    assert [record.case.params["batch_size"] for record in found] == [1, 2]
    assert all(len(record.launches[0].values) == 3 for record in found)
    page = tessera("report", "one", "-o", "one.html")
    assert page.returncode == 0, page.stderr
    assert "Throughput against latency" in Path("one.html").read_text()


def test_lines_for_scripts_are_where_they_are_expected():
    done = infer(*SMALL, "--batch-size", "2", *BRIEF, "--tag-output")
    assert done.returncode == 0, done.stderr
    assert "[0/1] [instance1/1] Throughput: " in done.stderr
    assert "Latency range: " in done.stderr
    assert "throughput: " in done.stdout
    assert " samples/sec (mean) (min: " in done.stdout
    assert "latency avg: " in done.stdout


def test_operators_are_shown_by_kind_and_by_layer():
    done = infer(*SMALL, "--by-operator", *BRIEF, "--top", "3")
    assert done.returncode == 0, done.stderr
    assert "by operator" in done.stdout
    assert "by layer, 3 of" in done.stdout
    assert "convolution depthwise" in done.stdout
    assert "for the whole batch" in done.stdout


def test_a_rate_that_is_not_held_is_exit_code_1_and_a_row_of_csv():
    words = ("--mode", "server", "--max-latency", "1us", "--target-rate", "50", "--quick", "--csv", "-o", "out.csv")
    done = infer(*SMALL, *words)
    assert done.returncode == 1, done.stderr
    (row,) = csv.DictReader(Path("out.csv").read_text().splitlines())
    assert (row["unit"], row["status"]) == ("images/s", "ok")
    metrics = json.loads(row["metrics"])
    assert "latency_p99" in metrics
    assert "capacity" in metrics


def test_tuning_names_the_best_and_draws_the_front():
    words = ("--tune", "--tune-time", "60s", "--batch-size", "1,4", "--num-replicas", "1", "--threads", "1", "--quick")
    done = infer(*SMALL, *words, "--run-name", "tuned", "--half-partial", "--no-pin", "--min-agreement", "100%")
    assert done.returncode == 0, done.stderr
    assert "- --half-partial has no effect" in done.stdout
    assert "--no-pin\n" in done.stdout, "launched as it was"
    assert "best for throughput: torch-eager 1x" in done.stdout
    assert "tessera infer --model tests.inference.small:classifier --" in done.stdout
    assert "Pareto front" in done.stdout
    assert "◆" in done.stdout
    with Store() as store:
        found = list(store.records(store.run("tuned")))
    assert len(found) == 2
    assert sum(record.version == "1" for record in found) == 1, "the best one is measured at length"
