"""The commands as a user types them: real runs, files that can be read back, one line for every mistake."""

from __future__ import annotations

import csv
import json
import signal
from pathlib import Path

import pytest

from tessera.cli.execute import keeping
from tessera.cli.main import COMMANDS, main
from tessera.cli.records_table import print_records
from tessera.results.export import read_json
from tessera.results.record import Case, Record
from tessera.results.store import Store
from tests.cli.typed import in_a_job, tessera

pytestmark = pytest.mark.timeout(120)
SMALL = ("--size", "small", "--pass", "forward")
LIGHT = (*SMALL, "--backend", "numpy")  # a worker that has nothing heavy to import


def test_help_teaches_without_running_anything(capsys):
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
        (["ops"], "no operator named"),
        (["ops", "ad"], "did you mean add"),
        (["ops", "add", "--size", "huge"], "allowed: small, medium, large"),
        (["ops", "add", "--pass", "sideways"], "unknown pass"),
        (["ops", "add", "--dtype", "int3"], "unknown dtype"),
        (["ops", "add", "--iterations", "0"], "iterations is too small"),
        (["ops", "--category", "aritmetic"], "unknown category"),
        (["ops", "add", "--backend", "tensorflow"], "unknown backend"),
        (["ops", "add", "--input", "lhs"], "NAME=VALUE"),
        (["ops", "add", "--input", "left=(3,3)"], "add has no such input: got 'left'; allowed: lhs, rhs, dtype"),
        (["ops", "add", "--input", "dtype=int3"], "unknown dtype"),
        (["ops", "add_scalar", "--input", "other=1j"], "--input"),
        (["ops", "add_scalar", "--input", "other={[1]: 2}"], "--input"),
        (["ops", "add", "--skew", "bent"], "unknown skew"),
        (["ops", "add", "--python", "no-python"], "not an interpreter"),
        (["ops", "add", "--python", "/bin/ls"], "not an interpreter"),
        (["ops", "add", "--operators", "gone.py"], "cannot read the operators"),
        (["ops", "--setup-backend", "torch"], "torch"),
        (["ops", "--suite", "quik"], "no such suite"),
        (["ops", "--from-model", "resnet5"], "did you mean resnet50"),
        (["list", "runs", "--coverage"], "--coverage is of operators"),
        (["repro"], "no record named"),
        (["ops", "add", "--launches", "0"], "launches: got 0"),
        (["ops", "add", "--launches", "many"], "--launches"),
        (["ops", "add", "--budget", "soon"], "not a duration"),
        (["ops", "add", "--target", "200%"], "not a fraction"),
        (["ops", "add", "--threads", "0"], "a worker needs threads"),
        (["ops", "add", "--ranks", "0"], "a launch needs workers"),
        (["ops", "add", "--launcher", "inline", "--ranks", "2"], "inline is one worker"),
        (["ops", "add", "--allocator", "jemalloc"], "--allocator"),
        (["ops", "add", "--colour"], "unrecognized arguments: --colour"),
        (["ops", "add", "--store", "."], "this is a directory"),
        (["ops", "add", "--run-name", "latest"], "not a name"),
        (["suite"], "no suite named"),
        (["suite", "quik"], "no such suite"),
        (["suite", "quick", "-o", "no/such/place.html"], "no such directory"),
        (["suite", "quick", "--launches", "-1"], "launches: got -1"),
        (["suite", "quick", "--resume"], "no unfinished run"),
        (["list", "fish"], "invalid choice: 'fish'"),
        (["list", "runs"], "there is no store here"),
        (["report", "gone"], "there is no store here"),
        (["compare", "a", "b"], "there is no store here"),
        (["ab"], "no operator named"),
        (["ab", "add", "--b", "no-python"], "not an interpreter"),
        (["ab", "add", "--env-a", "X"], "NAME=VALUE"),
        (["ab", "add", "--size", ""], "nothing to compare"),
        (["ab", "add", "--threshold", "abc"], "not a fraction"),
        (["doctor", "--calibrate", "--directory", "gone"], "no such directory"),
        (["doctor", "--self-test", "--trials", "0"], "needs trials"),
        (["doctor", "--seconds", "-3"], "seconds"),
        (["doctor", "--trials", "5"], "--trials is of --self-test"),
        (["doctor", "--self-test", "--launcher", "none"], "--launcher is of --calibrate"),
        (["doctor", "--calibrate", "--seconds", "3"], "no use for --seconds"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words, says, capsys):
    assert main(words) == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert captured.err.startswith("tessera: ")
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_a_file_that_is_no_store(capsys):
    Path("text.sqlite").write_text("not a database, but long enough to look like one" * 20)
    assert main(["ops", "add", "--store", "text.sqlite"]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_ops_stores_prints_and_can_be_read_back():
    done = tessera("ops", "add", "conv2d", "--quick", *SMALL, "--run-name", "first")
    assert done.returncode == 0, done.stderr
    assert "ops add" in done.stdout
    assert "µs" in done.stdout
    assert "stored as run first" in done.stdout
    assert "[2/2] ops/conv2d" in done.stderr
    with Store() as store:
        records = list(store.records(store.run("first")))
    assert [record.case.name for record in records] == ["add", "conv2d"]
    assert all(record.environment["allocator"] == "steady" for record in records)
    assert all(record.environment["pinned_to"] == 1 for record in records)


def test_every_form_goes_to_a_file(capsys):
    assert main(["ops", "add", "exp", "--quick", *LIGHT, "--json", "-o", "out.json"]) == 0
    assert capsys.readouterr().out == ""
    assert [record.case.name for record in read_json("out.json").records] == ["add", "exp"]
    with Store() as store:
        run = store.run("latest")
        records = list(store.records(run))
    print_records(run, records, "csv", "out.csv")
    rows = list(csv.DictReader(Path("out.csv").read_text().splitlines()))
    assert [float(row["median"]) > 0 for row in rows] == [True, True]
    print_records(run, records, "markdown", "out.md")
    assert Path("out.md").read_text().count("| ops ") == 2
    assert capsys.readouterr().out == ""


def test_tables_of_two_features_stay_apart_in_markdown(capsys):
    records = [Record(case=Case(feature=feature, name="add")) for feature in ("ops", "halo")]
    with Store() as store:
        print_records(store.start_run("r"), records, "markdown", None)
    tables = capsys.readouterr().out.split("\n\n")
    assert ["| ops add" in table for table in tables] == [True, False]
    assert "| halo add" in tables[1]


def test_fixed_counts_as_the_seeds_have_them():
    words = (*LIGHT, "--warmup", "10", "--iterations", "100", "--launches", "2")
    assert main(["ops", "add", *words]) == 0
    with Store() as store:
        (record,) = store.records(store.run("latest"))
    assert [(len(s.warmups), len(s.values)) for s in record.launches] == [(10, 100), (10, 100)]


def test_a_suite_ends_in_a_table_and_a_page(capsys):
    Path("mine.toml").write_text(
        'budget = "60s"\n[sampling]\nbudget = 0.1\n[[cases]]\nfeature = "ops"\nnames = ["add", "exp"]\n'
        'size = ["small"]\nbackend = ["numpy"]\npasses = ["forward"]\n'
    )
    assert main(["suite", "mine.toml", "--dry-run"]) == 0
    assert "2 cases x 1 launches, at most" in capsys.readouterr().err
    assert not Path(".tessera").exists()
    assert main(["suite", "mine.toml", "-o", "mine.html", "--run-name", "one"]) == 0
    captured = capsys.readouterr()
    assert "report: mine.html" in captured.out
    assert "[2/2] ops/exp" in captured.err
    assert "Operators" in Path("mine.html").read_text()
    assert main(["list", "runs", "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)
    assert (run["name"], run["records"]) == ("one", 2)
    assert main(["suite", "mine.toml", "--run-name", "one"]) == 2
    assert "already a finished run" in capsys.readouterr().err
    assert main(["suite", "mine.toml", "-o", "mine.json", "--run-name", "two"]) == 0
    assert "stored as run two" in capsys.readouterr().out
    assert json.loads(Path("mine.json").read_text())["run"]["name"] == "two"


def test_lists_go_where_they_are_asked_to(capsys):
    words = {"models": "resnet50", "machines": "wormhole-n150", "launchers": "torchrun", "transports": "gloo"}
    for what, word in words.items():
        assert main(["list", what, "--csv", "-o", "list.csv"]) == 0
        assert word in Path("list.csv").read_text()
    assert main(["list", "-o", "kinds.txt"]) == 0
    assert "suites that come with Tessera" in Path("kinds.txt").read_text()
    assert capsys.readouterr().out == ""
    assert main(["list", "suites"]) == 0
    assert "quick" in capsys.readouterr().out


def test_the_doctor_describes_and_advises(capsys):
    assert main(["doctor", "--quick"]) == 0
    shown = capsys.readouterr().out
    assert "fingerprint" in shown
    assert "noise over" in shown
    assert main(["doctor", "--quick", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"environment", "noise", "advice"}
    assert main(["doctor", "--quick", "--csv"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    noise = {row["name"]: float(row["value"]) for row in rows if row["part"] == "noise"}
    assert set(noise) == set(found["noise"])
    assert {row["name"] for row in rows if row["part"] == "environment"} == set(found["environment"])


def test_the_doctor_tests_itself(capsys):
    assert main(["doctor", "--self-test", "--trials", "2", "--quick", "--json"]) == 0
    captured = capsys.readouterr()
    within, between = json.loads(captured.out)
    assert within["trials"] == between["trials"] == 2
    assert within["layout"].startswith("one process")
    assert between["smallest"] > 0
    assert "identical work in two processes, 2 of 2" in captured.err


@pytest.mark.slow
def test_the_doctor_calibrates_and_predictions_appear(capsys):
    assert main(["doctor", "--calibrate", "--quick", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["links"]["link"]["latency"] > 0
    assert main(["list", "machines"]) == 0
    assert "host" in capsys.readouterr().out
    assert main(["ops", "matmul", "--quick", "--size", "medium", "--pass", "forward"]) == 0
    with Store() as store:
        (record,) = store.records(store.run("latest"))
    assert record.predicted["time"].value > 0
    assert 0 < record.metrics["roofline"].value < 3


SLOWER = """\
import numpy
plain = numpy.exp
numpy.exp = lambda data: (plain(data), plain(data))[1]
"""


def test_ab_finds_what_is_slower_in_another_environment(capsys):
    """The other side is the same interpreter with a NumPy whose exp works twice."""
    folder = Path("slower").resolve()
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(SLOWER)
    words = (*LIGHT, "--env-b", f"PYTHONPATH={folder}", "--quick", "--run-name", "twice")
    assert main(["ab", "exp", "add", *words, "--json"]) == 1
    captured = capsys.readouterr()
    slower, same = json.loads(captured.out)["records"]
    assert "[2/2] add, small, forward" in captured.err
    assert slower["notes"] == ["slower"]
    assert 1.5 < slower["metrics"]["ratio"]["value"] < 2.5
    assert same["metrics"]["low"]["value"] <= same["metrics"]["ratio"]["value"] <= same["metrics"]["high"]["value"]
    assert same["case"]["params"]["b"] == f"this PYTHONPATH={folder}"


def test_a_run_that_breaks_off_says_how_to_go_on_and_an_empty_one_is_gone():
    with Store() as store:
        run = store.start_run("full of")
        store.add(run, Record(case=Case(feature="ops", name="add")))
        with pytest.raises(KeyboardInterrupt, match="go on with --resume --run-name 'full of'"), keeping(store, run):
            raise KeyboardInterrupt
        with pytest.raises(ZeroDivisionError), keeping(store, store.start_run("empty")):
            raise ZeroDivisionError
        assert [run.name for run in store.runs()] == ["full of"]


def test_an_interrupted_command_is_one_line(monkeypatch, capsys):
    """A command that stores nothing says nothing about going on."""
    monkeypatch.setattr("tessera.measure.noise.measure_noise", lambda seconds: signal.raise_signal(signal.SIGINT))
    assert main(["doctor"]) == 130
    assert capsys.readouterr().err == "tessera: interrupted\n"


@pytest.mark.ranks
@pytest.mark.parametrize("launcher", [pytest.param("torchrun", marks=pytest.mark.slow), "mpiexec"])
def test_ops_on_ranks(launcher):
    words = (*SMALL, "--ranks", "2", "--launcher", launcher, "--launches", "1", "--budget", "0.2s")
    done = tessera("ops", "add", *words)
    assert done.returncode == 0, done.stderr
    with Store() as store:
        (record,) = store.records(store.run("latest"))
    assert len(record.launches[0].ranks) == 2


@pytest.mark.ranks
def test_inside_a_job_the_command_joins_it():
    """Two ranks started by torchrun itself: one store, one table, joined samples."""
    done = in_a_job("ops", "add", *LIGHT, "--launches", "1", "--budget", "0.2s", "--run-name", "joined")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ops add") == 1
    with Store() as store:
        (record,) = store.records(store.run("joined"))
    assert len(record.launches[0].ranks) == 2
