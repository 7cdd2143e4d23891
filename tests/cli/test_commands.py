"""Tests of every command: help, real runs, output files that can be read back, and one-line error messages."""

from __future__ import annotations

import csv
import json
import signal
from pathlib import Path

import pytest

from tessera.cli.execute import preserve_partial_run
from tessera.cli.main import COMMANDS, main
from tessera.report.record_tables import print_records
from tessera.results.export import read_json
from tessera.results.record import Case, Record
from tessera.results.store import Store
from tests.cli.run_command import run_tessera, run_tessera_in_job

pytestmark = pytest.mark.timeout(120)
SMALL_FORWARD = ("--size", "small", "--pass", "forward")
SMALL_FORWARD_NUMPY = (*SMALL_FORWARD, "--backend", "numpy")  # no torch import, so workers start fast


def test_help_lists_every_command(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    shown = capsys.readouterr().out
    for name in COMMANDS:
        assert name in shown
    assert "exit codes" in shown


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_help_with_examples(name, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([name, "--help"])
    assert "examples:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["opps"], "did you mean ops"),
        (["ops"], "no operator is given"),
        (["ops", "ad"], "did you mean add"),
        (["ops", "add", "--size", "huge"], "allowed: small, medium, large"),
        (["ops", "add", "--pass", "sideways"], "unknown pass"),
        (["ops", "add", "--dtype", "int3"], "unknown dtype"),
        (["ops", "add", "--iterations", "0"], "--iterations: got 0; allowed: 1 or more"),
        (["ops", "--category", "aritmetic"], "unknown category"),
        (["ops", "add", "--backend", "tensorflow"], "unknown backend"),
        (["ops", "add", "--input", "lhs"], "NAME=VALUE"),
        (
            ["ops", "add", "--input", "left=(3,3)"],
            "add has no input or argument of this name: got 'left'; allowed: lhs, rhs, dtype",
        ),
        (["ops", "add", "--input", "dtype=int3"], "unknown dtype"),
        (["ops", "add_scalar", "--input", "other=1j"], "--input"),
        (["ops", "add_scalar", "--input", "other={[1]: 2}"], "--input"),
        (["ops", "add", "--skew", "bent"], "unknown skew"),
        (["ops", "add", "--python", "no-python"], "not a Python 3 interpreter"),
        (["ops", "add", "--python", "/bin/ls"], "not a Python 3 interpreter"),
        (["ops", "add", "--operators", "gone.py"], "cannot read the operator file"),
        (["ops", "--setup-backend", "torch"], "torch"),
        (["ops", "--suite", "quik"], "unknown suite"),
        (["ops", "--from-model", "resnet5"], "did you mean resnet50"),
        (["list", "runs", "--coverage"], "--coverage applies only to ops"),
        (["repro"], "no record is given"),
        (["ops", "add", "--launches", "0"], "launches: got 0"),
        (["ops", "add", "--launches", "many"], "--launches"),
        (["ops", "add", "--budget", "soon"], "not a duration"),
        (["ops", "add", "--target", "200%"], "not a fraction"),
        (["ops", "add", "--threads", "0"], "invalid number of threads per worker"),
        (["ops", "add", "--ranks", "0"], "invalid number of workers"),
        (["ops", "add", "--launcher", "inline", "--ranks", "2"], "the launcher inline supports only one worker"),
        (["ops", "add", "--allocator", "jemalloc"], "unknown allocator: got 'jemalloc'"),
        (["ops", "add", "--colour"], "unrecognized arguments: --colour"),
        (["ops", "add", "--store", "."], "the path of the store is a directory"),
        (["ops", "add", "--run-name", "latest"], "invalid run name"),
        (["suite"], "no suite is given"),
        (["suite", "quik"], "unknown suite"),
        (["suite", "quick", "-o", "no/such/place.html"], "-o: the directory does not exist"),
        (["suite", "quick", "--launches", "-1"], "launches: got -1"),
        (["suite", "quick", "--budget", "10min"], "--budget was renamed to --total"),
        (["suite", "quick", "--resume"], "no unfinished run"),
        (["list", "fish"], "unknown kind: got 'fish'"),
        (["list", "runs"], "the store does not exist"),
        (["report", "gone"], "the store does not exist"),
        (["compare", "a", "b"], "the store does not exist"),
        (["ab"], "no operator is given"),
        (["ab", "add", "--b", "no-python"], "not a Python 3 interpreter"),
        (["ab", "add", "--env-a", "X"], "NAME=VALUE"),
        (["ab", "add", "--size", ""], "the list is empty"),
        (["ab", "add", "--threshold", "abc"], "not a fraction"),
        (["doctor", "--calibrate", "--directory", "gone"], "--directory does not exist"),
        (["doctor", "--self-test", "--trials", "0"], "--trials: got 0; allowed: 2 or more"),
        (["doctor", "--seconds", "-3"], "seconds"),
        (["doctor", "--trials", "5"], "--trials applies only to --self-test"),
        (["doctor", "--self-test", "--launcher", "none"], "--launcher applies only to --calibrate"),
        (["doctor", "--calibrate", "--seconds", "3"], "--seconds applies only to the default task and --self-test"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words, says, capsys):
    assert main(words) == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert captured.err.startswith("tessera: ")
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_a_file_that_is_not_a_store(capsys):
    Path("text.sqlite").write_text("not a database, but long enough to look like one" * 20)
    assert main(["ops", "add", "--store", "text.sqlite"]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_ops_stores_prints_and_can_be_read_back():
    done = run_tessera("ops", "add", "conv2d", "--quick", *SMALL_FORWARD, "--run-name", "first")
    assert done.returncode == 0, done.stderr
    assert "ops add" in done.stdout
    assert "µs" in done.stdout
    assert "stored as run first" in done.stdout
    assert "[2/2] ops/conv2d" in done.stderr
    with Store() as store:
        records = list(store.read_records(store.get_run("first")))
    assert [record.case.name for record in records] == ["add", "conv2d"]
    assert all(record.environment["allocator"] == "steady" for record in records)
    assert all(record.environment["pinned_to"] == 1 for record in records)


def test_every_format_can_be_written_to_a_file(capsys):
    assert main(["ops", "add", "exp", "--quick", *SMALL_FORWARD_NUMPY, "--json", "-o", "out.json"]) == 0
    assert capsys.readouterr().out == ""
    assert [record.case.name for record in read_json("out.json").records] == ["add", "exp"]
    with Store() as store:
        run = store.get_run("latest")
        records = list(store.read_records(run))
    print_records(run, records, "csv", "out.csv")
    rows = list(csv.DictReader(Path("out.csv").read_text().splitlines()))
    assert [float(row["median"]) > 0 for row in rows] == [True, True]
    print_records(run, records, "markdown", "out.md")
    assert Path("out.md").read_text().count("| ops ") == 2
    assert capsys.readouterr().out == ""


def test_markdown_has_one_table_per_feature(capsys):
    records = [Record(case=Case(feature=feature, name="add")) for feature in ("ops", "halo")]
    with Store() as store:
        print_records(store.start_run("r"), records, "markdown", None)
    tables = capsys.readouterr().out.split("\n\n")
    assert ["| ops add" in table for table in tables] == [True, False]
    assert "| halo add" in tables[1]


def test_fixed_warmup_and_iteration_counts():
    words = (*SMALL_FORWARD_NUMPY, "--warmup", "10", "--iterations", "100", "--launches", "2")
    assert main(["ops", "add", *words]) == 0
    with Store() as store:
        (record,) = store.read_records(store.get_run("latest"))
    assert [(len(s.warmups), len(s.values)) for s in record.launches] == [(10, 100), (10, 100)]


def test_a_suite_prints_a_table_and_writes_a_page(capsys):
    Path("mine.toml").write_text(
        'budget = "60s"\n[sampling]\nbudget = 0.1\n[[cases]]\nfeature = "ops"\nnames = ["add", "exp"]\n'
        'size = ["small"]\nbackend = ["numpy"]\npasses = ["forward"]\n'
    )
    assert main(["suite", "mine.toml", "--dry-run"]) == 0
    assert "2 cases x 1 launches, at most" in capsys.readouterr().err
    assert not Path(".tessera").exists()
    assert main(["suite", "mine.toml", "-o", "mine.html", "--run-name", "one"]) == 0
    captured = capsys.readouterr()
    assert "page with all figures and plots: mine.html" in captured.out
    assert "[2/2] ops/exp" in captured.err
    assert "Operators" in Path("mine.html").read_text()
    assert main(["list", "runs", "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)
    assert (run["name"], run["records"]) == ("one", 2)
    assert main(["suite", "mine.toml", "--run-name", "one"]) == 2
    assert "a finished run of this name exists" in capsys.readouterr().err
    assert main(["suite", "mine.toml", "-o", "mine.json", "--run-name", "two"]) == 0
    assert "stored as run two" in capsys.readouterr().out
    assert json.loads(Path("mine.json").read_text())["run"]["name"] == "two"


def test_lists_can_be_written_to_files(capsys):
    words = {"models": "resnet50", "machines": "wormhole-n150", "launchers": "torchrun", "transports": "gloo"}
    for kind, word in words.items():
        assert main(["list", kind, "--csv", "-o", "list.csv"]) == 0
        assert word in Path("list.csv").read_text()
    assert main(["list", "-o", "kinds.txt"]) == 0
    assert "suites that are part of Tessera" in Path("kinds.txt").read_text()
    assert capsys.readouterr().out == ""
    assert main(["list", "suites"]) == 0
    assert "quick" in capsys.readouterr().out


def test_doctor_reports_environment_noise_and_advice(capsys):
    assert main(["doctor", "--quick"]) in (0, 1)
    shown = capsys.readouterr().out
    assert "fingerprint" in shown
    assert "noise over" in shown
    code = main(["doctor", "--quick", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert set(report) == {"environment", "noise", "advice", "fit", "verdict"}
    assert code == (0 if report["fit"] else 1)
    assert main(["doctor", "--quick", "--csv"]) in (0, 1)
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    noise = {row["name"]: float(row["value"]) for row in rows if row["part"] == "noise"}
    assert set(noise) == set(report["noise"])
    assert {row["name"] for row in rows if row["part"] == "environment"} == set(report["environment"])


def test_doctor_self_test(capsys):
    assert main(["doctor", "--self-test", "--trials", "2", "--quick", "--json"]) == 0
    captured = capsys.readouterr()
    within, between = json.loads(captured.out)
    assert within["trials"] == between["trials"] == 2
    assert within["layout"].startswith("one process")
    assert between["smallest"] > 0
    assert "identical work in two processes, 2 of 2" in captured.err


@pytest.mark.slow
def test_doctor_calibrates_and_records_get_predictions(capsys):
    assert main(["doctor", "--calibrate", "--quick", "--json", "--force"]) == 0
    assert json.loads(capsys.readouterr().out)["links"]["link"]["latency"] > 0
    assert main(["list", "machines"]) == 0
    assert "host" in capsys.readouterr().out
    assert main(["ops", "matmul", "--quick", "--size", "medium", "--pass", "forward"]) == 0
    with Store() as store:
        (record,) = store.read_records(store.get_run("latest"))
    assert record.predicted["time"].value > 0
    assert 0 < record.metrics["roofline"].value < 3


SLOW_EXP_PATCH = """\
import numpy
plain = numpy.exp
numpy.exp = lambda data: (plain(data), plain(data))[1]
"""


def test_ab_detects_a_slower_operator_in_another_environment(capsys):
    """Side B is the interpreter of side A with a patched NumPy whose exp computes twice."""
    folder = Path("slower").resolve()
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(SLOW_EXP_PATCH)
    words = (*SMALL_FORWARD_NUMPY, "--env-b", f"PYTHONPATH={folder}", "--quick", "--run-name", "twice")
    assert main(["ab", "exp", "add", *words, "--json"]) == 1
    captured = capsys.readouterr()
    slower, same = json.loads(captured.out)["records"]
    assert "[2/2] ab/add[" in captured.err
    assert slower["verdict"] == "slower"
    assert 1.5 < slower["metrics"]["ratio"]["value"] < 2.5
    assert same["metrics"]["low"]["value"] <= same["metrics"]["ratio"]["value"] <= same["metrics"]["high"]["value"]
    assert same["case"]["params"]["b"] == f"this PYTHONPATH={folder}"


def test_an_interrupted_run_says_how_to_resume_and_an_empty_run_is_deleted():
    with Store() as store:
        run = store.start_run("full of")
        store.add(run, Record(case=Case(feature="ops", name="add")))
        with (
            pytest.raises(KeyboardInterrupt, match="resume with --resume --run-name 'full of'"),
            preserve_partial_run(store, run),
        ):
            raise KeyboardInterrupt
        with pytest.raises(ZeroDivisionError), preserve_partial_run(store, store.start_run("empty")):
            raise ZeroDivisionError
        assert [run.name for run in store.list_runs()] == ["full of"]


def test_an_interrupted_command_is_one_line(monkeypatch, capsys):
    """A command that stores nothing does not mention resuming."""
    monkeypatch.setattr("tessera.measure.noise.measure_noise", lambda seconds: signal.raise_signal(signal.SIGINT))
    assert main(["doctor"]) == 130
    assert capsys.readouterr().err == "tessera: interrupted\n"


@pytest.mark.ranks
@pytest.mark.parametrize("launcher", [pytest.param("torchrun", marks=pytest.mark.slow), "mpiexec"])
def test_ops_on_ranks(launcher):
    words = (*SMALL_FORWARD, "--ranks", "2", "--launcher", launcher, "--launches", "1", "--budget", "0.2s")
    done = run_tessera("ops", "add", *words)
    assert done.returncode == 0, done.stderr
    with Store() as store:
        (record,) = store.read_records(store.get_run("latest"))
    assert len(record.launches[0].ranks) == 2


@pytest.mark.ranks
def test_inside_a_job_the_command_joins_it():
    """On two ranks of torchrun the command writes one store and one table, with the samples of both ranks."""
    done = run_tessera_in_job(
        "ops", "add", *SMALL_FORWARD_NUMPY, "--launches", "1", "--budget", "0.2s", "--run-name", "joined"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ops add") == 1
    with Store() as store:
        (record,) = store.read_records(store.get_run("joined"))
    assert len(record.launches[0].ranks) == 2
