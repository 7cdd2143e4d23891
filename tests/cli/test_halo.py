"""Tests of `tessera halo`: options, sweeps, real ranks, joining a job, and one-line error messages."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
from pathlib import Path

import pytest

from tessera.cli import halo_command
from tessera.cli.main import main
from tessera.errors import TesseraError
from tessera.results.store import Store
from tessera.suites.features import FEATURES, Feature
from tests.cli.run_command import run_tessera, run_tessera_in_job

pytestmark = pytest.mark.timeout(120)
TWO_PARTS = ("--num-spatial-parts", "2", "--slice-method", "vertical", "--image-size", "32", "--in-channels", "4")


@pytest.mark.parametrize("name", ["exchange", "compute", "validate", "scale", "plan"])
def test_every_benchmark_has_help_with_examples(name, capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["halo", name, "--help"])
    assert "examples:" in capsys.readouterr().out


def test_the_benchmarks_are_listed(capsys):
    assert main(["halo", "--list"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("exchange", "compute", "validate", "scale", "plan"))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["exchnge"], "invalid choice: 'exchnge'"),
        (["exchange", "--image-size", "big"], "not a size"),
        (["exchange", "--image-size", "0"], "--image-size"),
        (["exchange", "--num-spatial-parts", "100"], "more parts than the image has pixels along a dim"),
        (["exchange", "--num-spatial-parts", "many"], "not a whole number"),
        (["exchange", "--slice-method", "diagonal"], "unknown slice method 'diagonal'"),
        (["exchange", "--num-spatial-parts", "6", "--slice-method", "2x2"], "allowed: 1x6, 2x3, 3x2, 6x1"),
        (["exchange", "--kernel", "11", "--padding", "0"], "does not fit an image of 8"),
        (["exchange", "--kernel", "3", "--halo-len", "2"], "both set the kernel size"),
        (["exchange", "--iterations", "0"], "--iterations: got 0; allowed: 1 or more"),
        (["exchange", "--dtype", "int3"], "unknown dtype"),
        (["exchange", "--transport", "pigeon"], "unknown transport"),
        (["exchange", "--overlap", "none"], "unrecognized arguments: --overlap"),
        (["exchange", "--sweep", "overlap=none,split"], "--overlap applies only to compute and validate"),
        (["exchange", "--sweep", "image-sise=3"], "did you mean image-size"),
        (["exchange", "--sweep", "image-size"], "OPTION=A,B"),
        (["exchange", "--sweep", "image-size=,"], "no values"),
        (["exchange", "--sweep", "image-size=8,9", "--image-size", "8"], "--image-size is given twice"),
        (["exchange", "--channels-last", "--layout", "contiguous"], "not allowed with argument"),
        (["compute", "--overlap", "none,most"], "unknown overlap"),
        (["compute", "--overlap", ","], "overlap has no values"),
        (["validate", "--overlap", ""], "overlap has no values"),
        (["validate", "--iterations", "0"], "3 or more"),
        (["validate", "--target", "3%"], "unrecognized arguments: --target"),
        (["exchange", "--launches", "0"], "launches: got 0"),
        (["exchange", "--ranks", "2"], "unrecognized arguments: --ranks"),
        (["exchange", "--image-size", "100000", "--in-channels", "64"], "exchange 100000: not enough memory"),
        (["network", "--image-size", "1000000"], "network 1000000: not enough memory"),
        (
            ["network", "--image-size", "8", "--num-spatial-parts", "100"],
            "more parts than the image has pixels along a dim",
        ),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words, says, capsys):
    assert main(["halo", *words]) == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert captured.err.startswith("tessera: ")
    assert captured.err.count("\n") == 1
    assert captured.out == ""


@pytest.mark.parametrize("name", ["exchange", "compute", "network", "validate"])
def test_too_many_ranks_for_the_cores_are_refused_unless_asked_for(name, monkeypatch, capsys):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    plans = []

    def stop(plan, args, **options):
        plans.append(plan)
        raise TesseraError("stopped")

    monkeypatch.setattr(halo_command, "execute_and_print", stop)
    words = ["halo", name, "--image-size", "64", "--num-spatial-parts"]
    assert main([*words, "17"]) == 2
    expected = "too many ranks for the cores of this machine: got '17 ranks'; allowed: up to 16, 8 per core; use fewer"
    assert expected in capsys.readouterr().err
    assert plans == []
    assert main([*words, "16"]) == main([*words, "17", "--oversubscribe"]) == 2
    assert len(plans) == 2


def test_a_job_must_have_as_many_ranks_as_parts(monkeypatch, capsys):
    for name, value in (("OMPI_COMM_WORLD_SIZE", "2"), ("OMPI_COMM_WORLD_RANK", "0")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TESSERA_WORKER", raising=False)
    assert main(["halo", "exchange"]) == 2
    assert "this mpiexec job has 2 ranks: got '4 parts'; use --num-spatial-parts 2" in capsys.readouterr().err


def test_an_unusable_transport_is_a_one_line_error(monkeypatch, capsys):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "mpi4py" else real(name, *more)
    )
    assert main(["halo", "exchange", "--transport", "shared"]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("tessera: transport shared cannot be used here: mpi4py is not installed")
    assert captured.err.count("\n") == 1


def test_a_sweep_expands_to_all_combinations(capsys):
    words = ("--sweep", "image-size=32,48x64", "--sweep", "slice-method=vertical,2x2", "--sweep", "halo-len=1,3")
    assert main(["halo", "exchange", *words, "--list", "--json"]) == 0
    keys = [row["case"] for row in json.loads(capsys.readouterr().out)]
    assert len(set(keys)) == 8
    assert sum("image_size=[48,64]" in key and "kernel=7" in key for key in keys) == 2


def test_options_without_effect_are_noted(capsys):
    words = ("--out-channels", "4", "--fp16-allreduce", "--list")
    assert main(["halo", "exchange", *words]) == 0
    assert main(["halo", "compute", "--fp16-allreduce", "--list"]) == 0
    assert main(["halo", "validate", "--warmup", "3", "--fp16-allreduce", "--list"]) == 0
    notes = capsys.readouterr().err.splitlines()
    assert [line.removeprefix("note: ").split()[0] for line in notes] == [
        "--out-channels",
        "--fp16-allreduce",
        "--fp16-allreduce",
        "--fp16-allreduce",
        "--warmup",
    ]


@pytest.mark.parametrize("name", ["exchange", "compute", "validate"])
def test_the_file_suffix_selects_the_format(name, tmp_path):
    plain, listed, marked = (tmp_path / f"cases.{suffix}" for suffix in ("csv", "json", "md"))
    for path in (plain, listed, marked):
        assert main(["halo", name, "--list", "-o", str(path)]) == 0
    keys = [row["case"] for row in csv.DictReader(plain.read_text().splitlines())]
    assert keys == [row["case"] for row in json.loads(listed.read_text())]
    assert marked.read_text().startswith("| case")
    assert main(["halo", name, "--list", "--json", "-o", str(plain)]) == 0
    assert [row["case"] for row in json.loads(plain.read_text())] == keys, "--json overrides the suffix"


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        (["exchange"], 710),
        (["exchange", "--iterations", "1000", "--warmup", "0"], 1600),
        (["exchange", "--time-limit", "5s"], 5),
        (["exchange", "--quick"], None),
        (["compute", "--overlap", "none"], 710),
        (["exchange", "--iterations", "3000000"], 3_000_696),
        (["network", "--num-spatial-parts", "2", "--iterations", "3000000"], 180_001_200),
        (["validate"], 603),
        (["validate", "--iterations", "10"], 610),
    ],
)
def test_every_benchmark_has_a_time_limit(words, limit, monkeypatch):
    """With adaptive sampling the plan has no time limit: it is derived from the budget when the run starts."""
    limits = []

    def stop(plan, args, **options):
        limits.append(plan.launch.time_limit)
        raise TesseraError("stopped")

    monkeypatch.setattr(halo_command, "execute_and_print", stop)
    assert main(["halo", *words]) == 2
    assert limits == [limit if limit is None else pytest.approx(limit, abs=1)]


@pytest.mark.ranks
def test_an_exchange_is_stored_and_shown_with_its_neighbours():
    done = run_tessera("halo", "exchange", *TWO_PARTS, "--launches", "2", "--iterations", "20", "--run-name", "one")
    assert done.returncode == 0, done.stderr
    assert "halo exchange" in done.stdout
    assert "per neighbour" in done.stdout
    assert "stored as run one" in done.stdout
    with Store() as store:
        (record,) = store.read_records(store.get_run("one"))
    assert [(len(s.warmups), len(s.values), len(s.ranks)) for s in record.launches] == [(10, 20, 2)] * 2
    page = run_tessera("report", "one", "-o", "one.html")
    assert page.returncode == 0, page.stderr
    assert "Halo exchange" in Path("one.html").read_text()


@pytest.mark.ranks
def test_a_sweep_of_compute_cases():
    words = ("--out-channels", "4", "--overlap", "none,recompute", "--sweep", "halo-len=1,2", "--quick")
    done = run_tessera("halo", "compute", *TWO_PARTS, *words, "--transport", "gloo", "-o", "out.csv")
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(Path("out.csv").read_text().splitlines()))
    cases = [(json.loads(row["params"]), json.loads(row["metrics"])) for row in rows]
    assert [(params["overlap"], params["kernel"]) for params, _ in cases] == [
        ("none", 3),
        ("recompute", 3),
        ("none", 5),
        ("recompute", 5),
    ]
    assert all(row["status"] == "ok" for row in rows)
    assert [("hidden" in metrics, "efficiency" in metrics) for _, metrics in cases] == [(False, True), (True, True)] * 2


@pytest.mark.ranks
def test_a_validation_prints_a_line_per_rank():
    done = run_tessera("halo", "validate", "--image-size", "21x34", "--num-spatial-parts", "4", "--out-channels", "3")
    assert done.returncode == 0, done.stderr
    for rank in range(4):
        assert f"Validation passed for rank: {rank}\n" in done.stdout


@pytest.mark.ranks
def test_a_failed_validation_exits_with_1_and_prints_rank_box_and_error(monkeypatch, capsys):
    real = FEATURES["halo"]
    broken = Feature(
        title=real.title,
        cases=real.cases,
        run="tests.spatial.faulty_transport:run_case",
        section="",
        launch=real.launch,
    )
    monkeypatch.setitem(FEATURES, "halo", broken)
    assert main(["halo", "validate", *TWO_PARTS, "--out-channels", "2", "--overlap", "none"]) == 1
    shown = capsys.readouterr().out
    assert "Validation failed for rank: 1: received pixels of Box(0:1, 0:32, 15:16) off by 1 (round 2" in shown


@pytest.mark.ranks
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "words", [["network", "--model", "resnet18", "--batch-size", "2"], ["compute", "--overlap", "none,split"]]
)
def test_a_trace_has_a_process_for_each_rank_with_its_work_and_its_waits(words, tmp_path):
    path = tmp_path / "trace.json"
    size = ["--image-size", "32", "--num-spatial-parts", "2", "--backward", "--store", str(tmp_path / "runs.sqlite")]
    fast = ["--iterations", "2", "--warmup", "1", "--launches", "1"]
    assert main(["halo", *words, *size, *fast, "--trace", str(path)]) == 0
    events = json.loads(path.read_text())["traceEvents"]
    ranks = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    runs = 2 if words[0] == "compute" else 1
    assert [name[-6:] for name in ranks] == ["rank 0", "rank 1"] * runs
    lanes = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    spans = [event for event in events if event["ph"] == "X"]
    for process in range(1, 2 * runs + 1):
        own = [span for span in spans if span["pid"] == process]
        steps = [span for span in own if lanes[span["tid"]] == "step"]
        assert [span["name"] for span in steps] == ["step 1", "step 2", "step 3"]
        assert {lanes[span["tid"]] for span in own} == {"step", "compute", "send", "wait", "sum"}
        assert {"convolution", "convolution_backward"} <= {span["name"] for span in own}
        assert min(span["ts"] for span in own) >= 0
        inside = [span for span in own if steps[0]["ts"] <= span["ts"] <= steps[-1]["ts"] + steps[-1]["dur"]]
        assert len(inside) >= len(own) - 1  # the last barrier


def test_a_trace_in_a_missing_directory_is_refused_before_measuring(tmp_path, capsys):
    assert main(["halo", "compute", "--trace", str(tmp_path / "missing" / "trace.json")]) == 2
    assert "the directory of --trace does not exist" in capsys.readouterr().err


@pytest.mark.ranks
def test_inside_a_job_the_command_joins_it():
    done = run_tessera_in_job("halo", "validate", *TWO_PARTS, "--out-channels", "2", "--run-name", "joined")
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("Validation")] == [
        "Validation passed for rank: 0",
        "Validation passed for rank: 1",
    ]
    with Store() as store:
        (record,) = store.read_records(store.get_run("joined"))
    assert record.chosen["transport"] == "shm"
