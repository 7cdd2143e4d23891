"""Tests of `tessera ops`: backends, inputs, sources of operators, and error messages."""

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
from tests.cli.run_command import run_tessera

pytestmark = pytest.mark.timeout(120)
QUICK_SMALL_FORWARD = ("--quick", "--size", "small", "--pass", "forward")

CRASHING_OPERATORS = """
from tessera.operators.operator import Input, Operator, make_sizes

SIZES = make_sizes(lambda n: {"data": Input(shape=(n,))}, 4, 8, 16)
OPERATORS = (
    Operator(name="crash", category="mine", torch="__import__('os').kill(__import__('os').getpid(), 11)",
             reference="data", sizes=SIZES),
    Operator(name="wrong", category="mine", torch="data + 1", reference="data", sizes=SIZES),
    Operator(name="twice", category="mine", torch="data * 2", reference="data * 2", sizes=SIZES),
)
"""


def test_an_operator_that_crashes_or_is_wrong_stops_no_other():
    Path("mine.py").write_text(CRASHING_OPERATORS)
    done = run_tessera("ops", "--operators", "mine.py", "--category", "mine", *QUICK_SMALL_FORWARD)
    assert done.returncode == 4
    with Store() as store:
        records = {record.case.name: record for record in store.read_records(store.get_run("latest"))}
    assert {name: record.status for name, record in records.items()} == {
        "crash": "failed",
        "wrong": "refused",
        "twice": "ok",
    }
    assert "SIGSEGV" in records["crash"].reason
    assert "differs from the reference" in records["wrong"].reason


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1", "the operator file does not define a tuple OPERATORS"),
        ("OPERATORS = (1,)", "OPERATORS must be a tuple of `Operator` objects"),
        ("OPERATORS = (", "the operator file raised an error: SyntaxError"),
        (CRASHING_OPERATORS.replace("twice", "add"), "the name 'add' of add is already used"),
    ],
)
def test_an_invalid_operator_file_is_a_one_line_error(text, says):
    Path("mine.py").write_text(text)
    done = run_tessera("ops", "--operators", "mine.py", "add")
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_backends_are_columns_of_one_table():
    done = run_tessera("ops", "add", "exp", "conv2d", "--backend", "torch,numpy", *QUICK_SMALL_FORWARD, "--csv")
    assert done.returncode == 0, done.stderr
    rows = {row["operator"]: row for row in csv.DictReader(io.StringIO(done.stdout))}
    assert rows["conv2d"]["numpy"] == "refused"
    for name in ("add", "exp"):
        assert "µs" in rows[name]["torch"]
        assert re.fullmatch(r"\d+\.\d\dx", rows[name]["numpy gains"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["add", "--input", "lhs=(3,4)", "--input", "rhs=(5,4)"], "operands could not be broadcast"),
        (["add", "--input", "lhs=(1000000,1000000)"], "the inputs do not fit into the free memory"),
        (["argmax", "--pass", "backward"], "argmax has no backward pass"),
        (["conv2d", "--backend", "numpy"], "NumPy does not support the operator conv2d"),
    ],
)
def test_unmeasurable_cases_are_refused_with_a_reason_and_exit_code_2(words, says):
    done = run_tessera("ops", "--quick", "--size", "small", "--pass", "forward", *words)
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
    done = run_tessera(
        "ops", "add", "matmul", "conv2d", *QUICK_SMALL_FORWARD, "--metric", "gflops", "--top", "1", "--json"
    )
    (record,) = json.loads(done.stdout)["records"]
    assert record["case"]["name"] in ("matmul", "conv2d")


def test_fit_splits_time_into_overhead_and_cost():
    done = run_tessera("ops", "add", "--quick", "--size", "all", "--pass", "forward", "--fit", "--csv")
    assert done.returncode == 0, done.stderr
    (row,) = csv.DictReader(io.StringIO(done.stdout))
    assert (row["operator"], row["sizes"]) == ("add", "small, medium, large")
    assert row["cost"].endswith("s/B")
    assert row["overhead"].endswith("s")


def test_a_suite_with_a_total_time_and_a_reproduction_script():
    Path("mine.toml").write_text(
        'budget = "30 s"\nlaunches = 1\n[[cases]]\nfeature = "ops"\nnames = ["add", "mul"]\nsize = ["small"]\n'
        'passes = ["forward"]\n'
    )
    done = run_tessera("ops", "--suite", "mine.toml", "--total", "20s", "--run-name", "mine")
    assert done.returncode == 0, done.stderr
    done = run_tessera("repro", "multiply", "size=small", "--run", "mine", "-o", "again.py")
    assert done.returncode == 0, done.stderr
    again = subprocess.run([sys.executable, "again.py"], capture_output=True, text=True, check=True)
    assert "seconds (median of" in again.stdout
    done = run_tessera("repro", "*", "--run", "mine")
    assert done.returncode == 2
    assert "2 records match" in done.stderr


def test_the_list_has_name_category_and_backends():
    done = run_tessera("list", "ops", "--json")
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert rows["add"]["category"] == "arithmetic"
    assert rows["add"]["medium input"] == "lhs 1024x1024, rhs 1024x1024"
    assert {"torch", "numpy", "jax", "mxnet"} <= set(rows["add"]["backends"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["add", "--batch-size", "8"], "--batch-size applies only to --from-model: got 'the catalogue'"),
        (["--from-model", "resnet18", "--skew", "nan"], "--skew applies only to the catalogue: got '--from-model'"),
        (
            ["--from-model", "resnet18", "--source", "opinfo"],
            "these options cannot be combined: got '--from-model and --source",
        ),
        (["--suite", "quick", "--from-model", "resnet18"], "these options cannot be combined"),
        (
            ["--suite", "quick", "--dtype", "float64"],
            "--dtype applies only to the catalogue and --source opinfo and --from-model and --table: got '--suite'",
        ),
        (
            ["--suite", "quick", "--budget", "1s"],
            "--budget applies only to the catalogue and --source opinfo and --from-model and --table: got '--suite'",
        ),
        (
            ["--source", "opinfo", "add", "--backend", "numpy"],
            "--backend applies only to the catalogue and --table: got '--source opinfo'",
        ),
        (["--source", "opinfo", "add", "--size", "large"], "unknown size of an OpInfo case: got 'large'"),
        (["add", "--fusion", "library"], "--fusion applies only to forward passes of the category `fused`"),
        (["add", "--dtype", "float64", "--input", "dtype=float32"], "the dtype is given twice"),
        (
            ["--from-model", "resnet18", "--fit"],
            "--fit applies only to the catalogue and --source opinfo and --suite: got '--from-model'",
        ),
    ],
)
def test_options_of_another_source_are_refused(words, says, capsys):
    assert main(["ops", *words]) == 2
    message = capsys.readouterr().err
    assert says in message
    assert message.count("\n") == 1


def test_the_list_follows_the_selection(capsys):
    def list_operators(*words: str) -> list[dict[str, Any]]:
        assert main(["ops", "--list", "--json", *words]) == 0
        rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
        return rows

    assert {row["name"] for row in list_operators("conv_transpose*")} >= {"conv_transpose1d", "conv_transpose2d"}
    assert {row["category"] for row in list_operators("--category", "pooling")} == {"pooling"}
    assert all("jax" in row["backends"] for row in list_operators("--backend", "jax"))
    assert [row["name"] for row in list_operators("--source", "opinfo", "linalg.det")] == ["linalg.det"]
    calls = list_operators("--from-model", "resnet18", "--pass", "forward")
    assert sum(row["calls"] for row in calls if row["operator"] == "aten.convolution") == 20


@pytest.mark.slow
def test_opinfo_cases_are_small_and_medium():
    done = run_tessera("ops", "--source", "opinfo", "sinc", "--quick", "--size", "all", "--pass", "forward", "--json")
    assert [record["case"]["params"]["size"] for record in json.loads(done.stdout)["records"]] == ["small", "medium"]


MODEL_FILE = """
from torch import nn


def small():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))
"""


def test_a_call_of_a_model_has_a_reproduction_script():
    Path("mine.py").write_text(MODEL_FILE)
    selection = ("--from-model", "mine:small", "--image-size", "8", "--pass", "forward")
    done = run_tessera("ops", *selection, "--quick", "--top", "2", "--metric", "gflops")
    assert done.returncode == 0, done.stderr
    calls, _, operators = done.stdout.partition("operators")
    assert {name for name in ("convolution", "addmm", "relu", "whole") if name in calls} == {"convolution", "addmm"}
    assert "aten.relu" in operators
    assert "the whole model takes" in operators
    done = run_tessera("repro", "aten.addmm", "-o", "again.py")
    assert done.returncode == 0, done.stderr
    again = subprocess.run([sys.executable, "-I", "again.py"], capture_output=True, text=True, check=True)
    assert "seconds (median of" in again.stdout
    done = run_tessera("repro", "whole")
    assert done.returncode == 2
    assert done.stderr.startswith("tessera: tessera repro does not support this case: the case is a whole model")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["addd", "--all"], "--all cannot be combined with operator names or --category: got 'addd'"),
        (
            ["--all", "--category", "pooling"],
            "--all cannot be combined with operator names or --category: got '--category pooling'",
        ),
        (["add", "--input", "lhs=(2,2)", "--input", "lhs=(3,3)"], "--input lhs is given twice"),
        (["add", "--python", sys.executable, "--launcher", "inline"], "--python requires --launcher processes"),
        (["add", "--python", sys.executable, "--launcher", "torchrun"], "--python requires --launcher processes"),
        (["--from-model", "broken:net"], "broken:net cannot be built: RuntimeError: no weights"),
    ],
)
def test_conflicting_options_are_a_one_line_error(words, says, capsys):
    Path("broken.py").write_text("def net():\n    raise RuntimeError('no weights')\n")
    assert main(["ops", *words]) == 2
    message = capsys.readouterr().err
    assert says in message
    assert message.count("\n") == 1


def test_the_file_suffix_selects_the_format():
    for suffix in ("json", "csv", "md", "txt"):
        done = run_tessera("ops", "add", *QUICK_SMALL_FORWARD, "-o", f"out.{suffix}")
        assert done.returncode == 0, done.stderr
        assert "stored as run" in done.stdout
    assert json.loads(Path("out.json").read_text())["records"][0]["case"]["name"] == "add"
    assert next(csv.DictReader(io.StringIO(Path("out.csv").read_text())))
    assert "| ops add |" in Path("out.md").read_text()
    assert "|" not in Path("out.txt").read_text()


def test_a_user_defined_operator_needs_no_medium_size(capsys):
    Path("mine.py").write_text(CRASHING_OPERATORS.replace("4, 8, 16)", '4, 8, 16)\nSIZES = {"small": SIZES["small"]}'))
    done = run_tessera("ops", "--operators", "mine.py", "--list", "--category", "mine", "--json")
    assert done.returncode == 0, done.stderr
    assert {row["medium input"] for row in json.loads(done.stdout)} == {"data 4"}


def test_shapes_without_a_flop_count_are_measured_without_rates():
    words = ("first=(64,)", "second=(64,64)", "third=(64,)")
    inputs = [word for value in words for word in ("--input", value)]
    done = run_tessera("ops", "linalg_multi_dot", *inputs, *QUICK_SMALL_FORWARD, "--json")
    (record,) = json.loads(done.stdout)["records"]
    assert record["status"] == "ok"
    assert "gflops" not in record["metrics"]
    assert any("no rates" in note for note in record["notes"])
