"""`tessera ops` as a user types it: backends, inputs, sources, and what goes wrong."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tessera.cli.main import main
from tessera.results.store import Store
from tests.cli.typed import tessera

pytestmark = pytest.mark.timeout(120)
FAST = ("--quick", "--size", "small", "--pass", "forward")

CRASHING = """
from tessera.operators.operator import Input, Operator, by_size

SIZES = by_size(lambda n: {"data": Input(shape=(n,))}, 4, 8, 16)
OPERATORS = (
    Operator(name="crash", category="mine", torch="__import__('os').kill(__import__('os').getpid(), 11)",
             reference="data", sizes=SIZES),
    Operator(name="wrong", category="mine", torch="data + 1", reference="data", sizes=SIZES),
    Operator(name="twice", category="mine", torch="data * 2", reference="data * 2", sizes=SIZES),
)
"""


def test_an_operator_that_crashes_or_is_wrong_stops_no_other():
    Path("mine.py").write_text(CRASHING)
    done = tessera("ops", "--operators", "mine.py", "--category", "mine", *FAST)
    assert done.returncode == 4
    with Store() as store:
        found = {record.case.name: record for record in store.records(store.run("latest"))}
    assert {name: record.status for name, record in found.items()} == {
        "crash": "failed",
        "wrong": "refused",
        "twice": "ok",
    }
    assert "SIGSEGV" in found["crash"].reason
    assert "differs from the reference" in found["wrong"].reason


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1", "the file has no tuple OPERATORS"),
        ("OPERATORS = (1,)", "OPERATORS is no tuple of operators"),
        ("OPERATORS = (", "the operators do not load: SyntaxError"),
        (CRASHING.replace("twice", "add"), "the name 'add' of add is taken"),
    ],
)
def test_a_file_of_operators_that_is_none_is_one_line(text, says):
    Path("mine.py").write_text(text)
    done = tessera("ops", "--operators", "mine.py", "add")
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_backends_stand_side_by_side():
    done = tessera("ops", "add", "exp", "conv2d", "--backend", "torch,numpy", *FAST, "--csv")
    assert done.returncode == 0, done.stderr
    found = {row["operator"]: row for row in csv.DictReader(io.StringIO(done.stdout))}
    assert found["conv2d"]["numpy"] == "refused"
    for name in ("add", "exp"):
        assert "µs" in found[name]["torch"]
        assert re.fullmatch(r"\d+\.\d\dx", found[name]["numpy gains"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["add", "--input", "lhs=(3,4)", "--input", "rhs=(5,4)"], "operands could not be broadcast"),
        (["add", "--input", "lhs=(1000000,1000000)"], "the inputs are too large for memory"),
        (["argmax", "--pass", "backward"], "argmax does not differentiate"),
        (["conv2d", "--backend", "numpy"], "NumPy has no conv2d"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_a_reason_and_exit_code_2(words, says):
    done = tessera("ops", "--quick", "--size", "small", "--pass", "forward", *words)
    assert done.returncode == 2, done.stdout
    assert f"refused: ops/{words[0]}" in done.stdout
    assert says in done.stdout
    assert "Traceback" not in done.stderr


def test_a_backend_that_is_not_installed_names_the_extra():
    code = (
        "import sys, importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'jax' else real(name, *a)\n"
        "from tessera.cli.main import main; sys.exit(main(['ops', 'add', '--backend', 'jax']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.strip() == "tessera: jax is not installed: pip install 'tessera[jax]'"


def test_top_ranks_by_a_metric():
    done = tessera("ops", "add", "matmul", "conv2d", *FAST, "--metric", "gflops", "--top", "1", "--json")
    (record,) = json.loads(done.stdout)["records"]
    assert record["case"]["name"] in ("matmul", "conv2d")


def test_time_is_split_into_overhead_and_cost():
    done = tessera("ops", "add", "--quick", "--size", "small,medium", "--pass", "forward", "--fit")
    assert done.returncode == 0, done.stderr
    assert "overhead" in done.stdout


def test_a_suite_is_divided_resumed_and_repeated_by_a_program():
    Path("mine.toml").write_text(
        'budget = "30 s"\nlaunches = 1\n[[cases]]\nfeature = "ops"\nnames = ["add", "mul"]\nsize = ["small"]\n'
        'passes = ["forward"]\n'
    )
    done = tessera("ops", "--suite", "mine.toml", "--total", "20s", "--run-name", "mine")
    assert done.returncode == 0, done.stderr
    done = tessera("repro", "multiply", "size=small", "--run", "mine", "-o", "again.py")
    assert done.returncode == 0, done.stderr
    again = subprocess.run([sys.executable, "again.py"], capture_output=True, text=True, check=True)
    assert "seconds (median of" in again.stdout
    done = tessera("repro", "*", "--run", "mine")
    assert done.returncode == 2
    assert "2 records fit" in done.stderr


def test_the_list_says_name_category_and_backends():
    done = tessera("list", "ops", "--json")
    found = {row["name"]: row for row in json.loads(done.stdout)}
    assert found["add"]["category"] == "arithmetic"
    assert found["add"]["medium input"] == "lhs 1024x1024, rhs 1024x1024"
    assert {"torch", "numpy", "jax", "mxnet"} <= set(found["add"]["backends"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["add", "--batch-size", "8"], "the catalogue has no use for it: got '--batch-size'"),
        (["--from-model", "resnet18", "--skew", "nan"], "--from-model has no use for it: got '--skew'"),
        (["--from-model", "resnet18", "--source", "opinfo"], "one place at a time: got '--from-model and --source"),
        (["--suite", "quick", "--from-model", "resnet18"], "one place at a time"),
        (["--suite", "quick", "--dtype", "float64"], "--suite has no use for it: got '--dtype'"),
        (["--suite", "quick", "--budget", "1s"], "--suite has no use for it: got '--budget'"),
        (["--source", "opinfo", "add", "--backend", "numpy"], "--source opinfo has no use for it: got '--backend'"),
        (["--source", "opinfo", "add", "--size", "large"], "unknown size of an OpInfo case: got 'large'"),
        (["add", "--fusion", "library"], "--fusion is of the category `fused`"),
        (["add", "--dtype", "float64", "--input", "dtype=float32"], "the dtype is given twice"),
        (["--from-model", "resnet18", "--fit"], "--from-model has no use for it: got '--fit'"),
    ],
)
def test_no_option_is_left_unheeded(words, says, capsys):
    assert main(["ops", *words]) == 2
    told = capsys.readouterr().err
    assert says in told
    assert told.count("\n") == 1


def test_the_list_is_of_what_was_asked_for(capsys):
    def listed(*words: str) -> list[dict[str, Any]]:
        assert main(["ops", "--list", "--json", *words]) == 0
        found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
        return found

    assert {row["name"] for row in listed("conv_transpose*")} >= {"conv_transpose1d", "conv_transpose2d"}
    assert {row["category"] for row in listed("--category", "pooling")} == {"pooling"}
    assert all("jax" in row["backends"] for row in listed("--backend", "jax"))
    assert [row["name"] for row in listed("--source", "opinfo", "linalg.det")] == ["linalg.det"]
    calls = listed("--from-model", "resnet18", "--pass", "forward")
    assert sum(row["calls"] for row in calls if row["operator"] == "aten.convolution") == 20


@pytest.mark.slow
def test_opinfo_has_all_its_sizes_in_small_and_medium():
    done = tessera("ops", "--source", "opinfo", "sinc", "--quick", "--size", "all", "--pass", "forward", "--json")
    assert [record["case"]["params"]["size"] for record in json.loads(done.stdout)["records"]] == ["small", "medium"]


MODEL = """
from torch import nn


def small():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))
"""


def test_a_call_of_a_model_is_repeated_by_a_program():
    Path("mine.py").write_text(MODEL)
    one = ("--from-model", "mine:small", "--image-size", "8", "--pass", "forward")
    done = tessera("ops", *one, "--quick", "--top", "2", "--metric", "gflops")
    assert done.returncode == 0, done.stderr
    calls, _, operators = done.stdout.partition("operators")
    assert {name for name in ("convolution", "addmm", "relu", "whole") if name in calls} == {"convolution", "addmm"}
    assert "aten.relu" in operators
    assert "the whole takes" in operators
    done = tessera("repro", "aten.addmm", "-o", "again.py")
    assert done.returncode == 0, done.stderr
    again = subprocess.run([sys.executable, "-I", "again.py"], capture_output=True, text=True, check=True)
    assert "seconds (median of" in again.stdout
    done = tessera("repro", "whole")
    assert done.returncode == 2
    assert done.stderr.startswith("tessera: no program can be written for this case: it is a whole model")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["addd", "--all"], "--all is every operator: got 'addd'"),
        (["--all", "--category", "pooling"], "--all is every operator: got '--category pooling'"),
        (["add", "--input", "lhs=(2,2)", "--input", "lhs=(3,3)"], "--input lhs is given twice"),
        (["add", "--python", sys.executable, "--launcher", "inline"], "--python needs processes of its own"),
        (["add", "--python", sys.executable, "--launcher", "torchrun"], "--python needs processes of its own"),
        (["--from-model", "broken:net"], "broken:net cannot be built: RuntimeError: no weights"),
    ],
)
def test_what_would_be_left_unheeded_is_one_line(words, says, capsys):
    Path("broken.py").write_text("def net():\n    raise RuntimeError('no weights')\n")
    assert main(["ops", *words]) == 2
    told = capsys.readouterr().err
    assert says in told
    assert told.count("\n") == 1


def test_the_name_of_the_file_says_its_form():
    for suffix in ("json", "csv", "md", "txt"):
        done = tessera("ops", "add", *FAST, "-o", f"out.{suffix}")
        assert done.returncode == 0, done.stderr
        assert "stored as run" in done.stdout
    assert json.loads(Path("out.json").read_text())["records"][0]["case"]["name"] == "add"
    assert next(csv.DictReader(io.StringIO(Path("out.csv").read_text())))
    assert "| ops add |" in Path("out.md").read_text()
    assert "|" not in Path("out.txt").read_text()


def test_an_operator_of_ones_own_needs_no_medium_size(capsys):
    Path("mine.py").write_text(CRASHING.replace("4, 8, 16)", '4, 8, 16)\nSIZES = {"small": SIZES["small"]}'))
    done = tessera("ops", "--operators", "mine.py", "--list", "--category", "mine", "--json")
    assert done.returncode == 0, done.stderr
    assert {row["medium input"] for row in json.loads(done.stdout)} == {"data 4"}


def test_shapes_that_flops_are_not_counted_from_are_measured_without_rates():
    words = ("first=(64,)", "second=(64,64)", "third=(64,)")
    inputs = [word for one in words for word in ("--input", one)]
    done = tessera("ops", "linalg_multi_dot", *inputs, *FAST, "--json")
    (record,) = json.loads(done.stdout)["records"]
    assert record["status"] == "ok"
    assert "gflops" not in record["metrics"]
    assert any("no rates" in note for note in record["notes"])
