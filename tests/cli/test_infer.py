"""Tests of `tessera infer`: sweeps, replicas, tuning, operators, and one-line error messages."""

from __future__ import annotations

import csv
import json
import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from tessera.cli.main import main
from tessera.errors import TesseraError
from tessera.inference.parsing import parse_latency, parse_sizes
from tessera.results.store import Store
from tests.cli.run_command import run_tessera

pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).parents[2]
SMALL_NETWORK = (
    "--model",
    "tests.inference.small_networks:build_classifier",
    "--image-size",
    "32",
    "--engine",
    "torch-eager",
)
SHORT_SAMPLING = ("--iterations", "3", "--warmup", "1", "--launches", "1")


def run_infer(*words: str):
    """Run `tessera infer` in a new process that can import the networks of the tests."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return run_tessera("infer", *words, env=os.environ | {"PYTHONPATH": path})


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "no network is given"),
        (["--model", "resnet51"], "did you mean resnet50"),
        (["--model", "resnet50", "--batch-size", "0"], "--batch-size: got 0"),
        (["--model", "resnet50", "--batch-size", "many"], "not a list of sizes"),
        (["--model", "resnet50", "--batch-size", "8..2"], "invalid range of sizes"),
        (["--model", "resnet50", "--batch-size", "all"], "--batch-size all requires --config"),
        (["--model", "resnet50", "--engine", "onnxruntme"], "did you mean onnxruntime"),
        (["--model", "resnet50", "--precision", "7.7"], "unknown precision"),
        (["--model", "resnet50", "--engine", "torch-eager", "--precision", "int8"], "does not compute in int8"),
        (["--model", "resnet50", "--num-replicas", "0"], "--num-replicas: got 0"),
        (["--model", "resnet50", "--num-replicas", "1000"], "use fewer replicas, or add --force"),
        (
            ["--model", "resnet50", "--num-instances", "2", "--num-replicas", "4"],
            "--num-instances and --num-replicas differ",
        ),
        (["--model", "resnet50", "--numa-aware", "maybe"], "not yes or no"),
        (["--model", "resnet50", "-x", "NOT_SET_ANYWHERE"], "not set"),
        (["--model", "resnet50", "--data", "nowhere"], "unknown --data"),
        (["--model", "resnet50", "--mode", "server"], "add --max-latency"),
        (["--model", "resnet50", "--max-latency", "50ms"], "--max-latency applies only to --mode server"),
        (["--model", "resnet50", "--mode", "server", "--max-latency", "50"], "not a latency"),
        (["--model", "resnet50", "--iterations", "0"], "--iterations: got 0"),
        (["--model", "resnet50", "--launches", "0"], "--launches: got 0"),
        (["--model", "resnet50", "--by-operator", "--top", "0"], "--top: got 0"),
        (["--model", "resnet50", "--top", "3"], "--top applies only to --by-operator"),
        (["--model", "resnet50", "--goal", "latency"], "--goal applies only to --tune"),
        (["--model", "resnet50", "--tune-time", "1min"], "--tune-time applies only to --tune"),
        (["--model", "resnet50", "--load-generator", "tessera"], "--load-generator applies only to --mode server"),
        (
            ["--model", "resnet50", "--iterations", "3", "--budget", "5s"],
            "--budget cannot be combined with --iterations",
        ),
        (
            ["--model", "resnet50", "--engine", "openvino", "--streams", "2", "--mode", "single-stream"],
            "--streams applies only to --mode offline",
        ),
        (["--config", "resnet5"], "did you mean resnet50"),
        (["--model", "resnet50", "--by-operator", "--num-replicas", "2"], "--by-operator requires one replica"),
        (
            ["--model", "resnet50", "--tune", "--mode", "server", "--max-latency", "1s"],
            "--mode does not apply to --tune",
        ),
        (["--model", "resnet50,resnet18", "--tune"], "--tune takes one value of --model"),
        (["--model", "resnet50", "--tune", "--resume"], "--resume applies only to a measurement without --tune"),
        (["--model", "resnet50", "--tune", "--list"], "--list cannot be combined with --tune"),
        (
            ["--model", "resnet50", "--tune", "--launches", "3"],
            "--launches applies only to a measurement without --tune",
        ),
        (["--model", "resnet50", "--tune", "--precision", "7.7"], "unknown precision"),
        (["--model", "resnet50", "--tune", "--num-replicas", "1000"], "use fewer replicas, or add --force"),
        (["--model", "resnet50", "--tune", "--engine", "torch-eager,onnxruntime", "--precision", "int8"], "int8"),
        (["--model", "nowhere.onnx"], "no such ONNX file: got 'nowhere.onnx'"),
        (["--model", "resnet50", "--tune", "--tune-time", "soon"], "not a duration"),
        (["--model", "resnet50", "--engine", ""], "--engine has no values"),
        (["--model", "resnet50", "--tune", "--engine", ""], "--engine has no values"),
        (["--model", ",", "--tune"], "--model has no values"),
        (["--model", "resnet50", "--precision", ","], "--precision has no values"),
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
def test_a_timm_network_without_timm_names_the_extra(capsys):
    assert main(["infer", "--model", "timm/resnet50"]) == 2
    assert capsys.readouterr().err == "tessera: timm is not installed: pip install 'tessera[timm]'\n"


def test_starting_inside_an_mpiexec_job_is_refused(monkeypatch, capsys):
    for name, value in (("OMPI_COMM_WORLD_SIZE", "2"), ("OMPI_COMM_WORLD_RANK", "0")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TESSERA_WORKER", raising=False)
    assert main(["infer", "--model", "resnet50"]) == 2
    assert "`tessera infer` cannot run inside a mpiexec job" in capsys.readouterr().err


def test_sizes_and_latencies_are_parsed():
    assert parse_sizes("1,2,4..80") == [1, 2, 4, 8, 16, 32, 64, 80]
    assert parse_sizes("3..7:2,8,8") == [3, 5, 7, 8]
    assert parse_sizes("5..5") == [5]
    assert parse_latency("250us") == pytest.approx(0.00025)
    for text in ("", ",", "1..", "1...4", "a", "0..4", "1..9:0", "1..99999:1"):
        with pytest.raises(TesseraError):
            parse_sizes(text)


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
def test_poprun_command_lines_are_accepted(config, io_tiles, more, capsys, monkeypatch):
    monkeypatch.setenv("POPLAR_RUNTIME_OPTIONS", "{}")
    words = ("--num-instances=4", "--numa-aware=yes", "--num-replicas=4", "--ipus-per-replica=1", "--tag-output")
    words += ("-x", "POPLAR_RUNTIME_OPTIONS", "--data", "generated", "--batch-size", "1", "--iterations", "20")
    words += ("--num-io-tiles", io_tiles, "--force", *(("--config", config) if config else ()), *more)
    assert main(["infer", *words, "--list", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert "num_replicas=4" in row["case"]
    assert 'precision="16.16"' in row["case"]


def test_a_sweep_is_stored_printed_and_reported():
    sides = ("--batch-size", "1,2", "--num-replicas", "2", "--force", "--device-iterations", "50")
    done = run_infer(*SMALL_NETWORK, *sides, *SHORT_SAMPLING, "--run-name", "one")
    assert done.returncode == 0, done.stderr
    assert "images/s" in done.stdout
    assert "scaling" in done.stdout
    assert "stored as run one" in done.stdout
    with Store() as store:
        records = list(store.read_records(store.get_run("one")))
    assert [record.case.params["batch_size"] for record in records] == [1, 2]
    assert all(len(record.launches[0].values) == 3 for record in records)
    page = run_tessera("report", "one", "-o", "one.html")
    assert page.returncode == 0, page.stderr
    assert "Throughput against latency" in Path("one.html").read_text()


def test_throughput_and_latency_lines_for_scripts():
    done = run_infer(*SMALL_NETWORK, "--batch-size", "2", *SHORT_SAMPLING, "--tag-output")
    assert done.returncode == 0, done.stderr
    assert "[0/1] [instance1/1] Throughput: " in done.stderr
    assert "Latency range: " in done.stderr
    assert "throughput: " in done.stdout
    assert " samples/sec (mean) (min: " in done.stdout
    assert "latency avg: " in done.stdout


def test_time_by_operator_and_by_layer():
    done = run_infer(*SMALL_NETWORK, "--by-operator", *SHORT_SAMPLING, "--top", "3")
    assert done.returncode == 0, done.stderr
    assert "by operator" in done.stdout
    assert "by layer, 3 of" in done.stdout
    assert "convolution depthwise" in done.stdout
    assert "for the whole batch" in done.stdout


def test_a_search_without_a_rate_that_meets_the_bound_exits_with_1():
    done = run_infer(*SMALL_NETWORK, "--mode", "server", "--max-latency", "1us", "--quick")
    assert done.returncode == 1, done.stderr
    assert "does not meet the latency bound" in done.stdout


def test_a_batch_that_exceeds_the_memory_is_refused():
    done = run_infer(*SMALL_NETWORK, "--batch-size", "1000000000", "--quick")
    assert "GB of memory are available" in done.stdout + done.stderr
    assert "allowed: at most" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_a_missed_target_rate_exits_with_1_and_writes_a_csv_row():
    words = ("--mode", "server", "--max-latency", "1us", "--target-rate", "50", "--quick", "--csv", "-o", "out.csv")
    done = run_infer(*SMALL_NETWORK, *words)
    assert done.returncode == 1, done.stderr
    (row,) = csv.DictReader(Path("out.csv").read_text().splitlines())
    assert (row["unit"], row["status"]) == ("images/s", "ok")
    metrics = json.loads(row["metrics"])
    assert "latency_p99" in metrics
    assert "capacity" in metrics


def test_tuning_prints_the_best_setting_and_the_pareto_front():
    words = ("--tune", "--tune-time", "200s", "--batch-size", "1,4", "--num-replicas", "1", "--threads", "1", "--quick")
    done = run_infer(
        *SMALL_NETWORK, *words, "--run-name", "tuned", "--half-partial", "--no-pin", "--min-agreement", "100%"
    )
    assert done.returncode == 0, done.stderr
    assert "- --half-partial has no effect" in done.stdout
    assert "--no-pin\n" in done.stdout, "the suggested command keeps --no-pin"
    assert "best for throughput: torch-eager 1x" in done.stdout
    assert "tessera infer --model tests.inference.small_networks:build_classifier --" in done.stdout
    assert "Pareto front" in done.stdout
    assert "◆" in done.stdout
    with Store() as store:
        records = list(store.read_records(store.get_run("tuned")))
    assert len(records) == 2
    assert sum(record.version == "1" for record in records) == 1, (
        "the best setting is measured again with full sampling"
    )
