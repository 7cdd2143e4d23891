"""The commands as a user types them: real runs, files that can be read back, one line for every mistake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tessera.cli.main import COMMANDS, main
from tessera.results.export import read_json
from tessera.results.store import Store

pytestmark = pytest.mark.timeout(120)


def in_a_job(*words: str) -> subprocess.CompletedProcess[str]:
    """The command on two ranks that torchrun itself has started."""
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "tessera")
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *launcher, *words], capture_output=True, text=True, timeout=100, check=False, env=env
    )


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Every command runs in a directory, a store and a data home of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TESSERA_STORE", raising=False)
    monkeypatch.setenv("TESSERA_HOME", str(tmp_path / "home"))
    return tmp_path


def tessera(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tessera", *words],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        **options,
    )


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
        (["ops", "add", "--skew", "bent"], "unknown skew"),
        (["ops", "add", "--python", "no-python"], "not an interpreter"),
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
        (["ab", "add", "--threshold", "abc"], "not a fraction"),
        (["doctor", "--calibrate", "--directory", "gone"], "no such directory"),
        (["doctor", "--self-test", "--trials", "0"], "needs trials"),
        (["doctor", "--seconds", "-3"], "seconds"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words, says, capsys):
    assert main(words) == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert captured.err.startswith("tessera: ")
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_a_file_that_is_no_store(elsewhere, capsys):
    Path("text.sqlite").write_text("not a database, but long enough to look like one" * 20)
    assert main(["ops", "add", "--store", "text.sqlite"]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_ops_stores_prints_and_can_be_read_back(elsewhere):
    done = tessera("ops", "add", "conv2d", "--quick", "--size", "small", "--pass", "forward", "--run-name", "first")
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


@pytest.mark.parametrize("form", ["json", "csv", "markdown"])
def test_every_form_goes_to_a_file(elsewhere, form):
    done = tessera("ops", "add", "--quick", "--size", "small", "--pass", "forward", f"--{form}", "-o", "out")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    text = Path("out").read_text()
    if form == "json":
        assert read_json("out").records[0].case.name == "add"
    elif form == "csv":
        assert text.splitlines()[0].startswith("key,feature,name,")
    else:
        assert text.count("|") > 10


def test_fixed_counts_as_the_seeds_have_them(elsewhere):
    done = tessera(
        "ops",
        "add",
        "--size",
        "small",
        "--pass",
        "both",
        "--warmup",
        "10",
        "--iterations",
        "100",
        "--launches",
        "2",
    )
    assert done.returncode == 0, done.stderr
    with Store() as store:
        (record,) = store.records(store.run("latest"))
    assert [(len(s.warmups), len(s.values)) for s in record.launches] == [(10, 100), (10, 100)]


def test_a_suite_ends_in_a_table_and_a_page(elsewhere):
    Path("mine.toml").write_text(
        'budget = "60s"\n[sampling]\nbudget = 0.1\n[[cases]]\nfeature = "ops"\nnames = ["add"]\nsize = ["small"]\n'
    )
    plan = tessera("suite", "mine.toml", "--dry-run")
    assert plan.returncode == 0
    assert "2 cases x 1 launches, at most" in plan.stderr
    assert not Path(".tessera").exists()
    done = tessera("suite", "mine.toml", "-o", "mine.html", "--run-name", "one")
    assert done.returncode == 0, done.stderr
    assert "report: mine.html" in done.stdout
    page = Path("mine.html").read_text()
    assert "Operators" in page
    assert "ops" in tessera("list", "runs").stdout or "one" in tessera("list", "runs").stdout
    again = tessera("suite", "mine.toml", "--run-name", "one")
    assert again.returncode == 2
    assert "already a finished run" in again.stderr


def test_lists(elsewhere):
    assert "resnet50" in tessera("list", "models").stdout
    assert "wormhole-n150" in tessera("list", "machines").stdout
    assert "quick" in tessera("list", "suites").stdout
    assert "torchrun" in tessera("list", "launchers").stdout
    assert "kind" in tessera("list").stdout


def test_the_doctor_describes_and_advises(elsewhere):
    done = tessera("doctor", "--quick")
    assert done.returncode == 0
    assert "fingerprint" in done.stdout
    assert "noise over" in done.stdout
    found = json.loads(tessera("doctor", "--quick", "--json").stdout)
    assert set(found) == {"environment", "noise", "advice"}


def test_the_doctor_tests_itself(elsewhere):
    done = tessera("doctor", "--self-test", "--trials", "2", "--quick", "--json")
    assert done.returncode == 0, done.stderr
    within, between = json.loads(done.stdout)
    assert within["trials"] == between["trials"] == 2
    assert within["layout"].startswith("one process")
    assert between["smallest"] > 0


@pytest.mark.slow
def test_the_doctor_calibrates_and_predictions_appear(elsewhere):
    done = tessera("doctor", "--calibrate", "--quick", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["links"]["link"]["latency"] > 0
    assert "host" in tessera("list", "machines").stdout
    tessera("ops", "matmul", "--quick", "--size", "medium", "--pass", "forward")
    with Store() as store:
        (record,) = store.records(store.run("latest"))
    assert record.predicted["time"].value > 0
    assert 0 < record.metrics["roofline"].value < 3


def test_ab_finds_another_environment(elsewhere):
    """The same interpreter without vector instructions multiplies matrices elsewhere, and adds slower here."""
    done = tessera("ab", "add", "--size", "small", "--env-b", "ATEN_CPU_CAPABILITY=default", "--quick", "--json")
    assert done.returncode in (0, 1), done.stderr
    (record,) = json.loads(done.stdout)["records"]
    assert (
        record["metrics"]["low"]["value"] <= record["metrics"]["ratio"]["value"] <= record["metrics"]["high"]["value"]
    )
    assert record["notes"][0] in ("slower", "faster", "same", "unresolved")
    assert record["case"]["params"]["b"] == "this ATEN_CPU_CAPABILITY=default"


@pytest.mark.ranks
@pytest.mark.parametrize("launcher", ["torchrun", "mpiexec"])
def test_ops_on_ranks(elsewhere, launcher):
    done = tessera(
        "ops", "add", "--size", "small", "--pass", "forward", "--ranks", "2", "--launcher", launcher, "--launches", "1",
        "--budget", "0.2s",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with Store() as store:
        (record,) = store.records(store.run("latest"))
    assert len(record.launches[0].ranks) == 2


@pytest.mark.ranks
def test_inside_a_job_the_command_joins_it(elsewhere):
    """Two ranks started by torchrun itself: one store, one table, joined samples."""
    words = ("--size", "small", "--pass", "forward", "--launches", "1", "--budget", "0.2s", "--run-name", "joined")
    done = in_a_job("ops", "add", *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ops add") == 1
    with Store() as store:
        (record,) = store.records(store.run("joined"))
    assert len(record.launches[0].ranks) == 2
