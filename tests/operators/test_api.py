"""Tests of the Python API of operators: operator classes, category functions, and the driver."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import tessera.operators
from tessera.errors import TesseraError
from tessera.measure.samples import Sampling
from tessera.operators.catalogue import OPERATORS, group_by_category
from tessera.operators.draws import Draw

QUICK = Sampling(budget=0.02, target=0.5)
LINE = r"PT_\w+_(Forward|Backward|Forward_Backward)_Time - \d+\.\d{6,12} seconds"


@pytest.mark.timeout(60)
def test_operator_class_measures_and_prints(capsys):
    from tessera.operators import Add

    add = Add(inputs={"dtype": "float64", "lhs": (32, 32), "rhs": (32, 32)}, sampling=QUICK)
    assert add.inputs["lhs"] == (32, 32)
    assert add.inputs["dtype"] == "float64"
    assert add.inputs["run_backward"] is True
    with pytest.raises(TesseraError, match="no results yet"):
        add.print_benchmark_results()
    record = add.run_benchmark()
    assert record.case.params["dtype"] == "float64"
    add.print_benchmark_results()
    assert re.fullmatch(r"PT_Add_Forward_Backward_Time - \d+\.\d{6,12} seconds\n", capsys.readouterr().out)


@pytest.mark.timeout(60)
def test_other_backends_other_values_and_no_backward(capsys):
    from tessera.operators import Exp

    exp = Exp(
        inputs={"run_backward": False, "initializer": Draw("rng.random(shape)")},
        backend="numpy",
        size="small",
        sampling=QUICK,
    )
    exp.run_benchmark()
    exp.print_benchmark_results()
    assert capsys.readouterr().out.startswith("NP_Exp_Forward_Time - ")


@pytest.mark.timeout(60)
def test_backend_without_gradients_defaults_to_forward(capsys):
    from tessera.operators import Add, run_all_powers_operations_benchmarks

    assert Add(backend="numpy").inputs["run_backward"] is False
    assert Add(backend="jax").inputs["run_backward"] is True
    run_all_powers_operations_benchmarks(backend="numpy", size="small", sampling=QUICK)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(group_by_category()["powers"])
    assert "NP_Sqrt_Forward_Time" in {line.partition(" ")[0] for line in lines}


def test_inputs_include_the_initializer_and_can_be_reused():
    from tessera.operators import Add, Embedding, Log

    assert Add().inputs["initializer"] == Draw("rng.standard_normal(shape)")
    assert "uniform" in Log().inputs["initializer"].expression
    for made in (Log(size="small"), Embedding(size="small")):
        again = type(made)(inputs=made.inputs, size="small")
        assert again.inputs == made.inputs
        assert "initializer" not in again.case.params
    changed = Log(inputs={**Log().inputs, "initializer": Draw("rng.uniform(2, 3, shape)")})
    assert changed.case.params["initializer"] == "rng.uniform(2, 3, shape)"


def test_benchmark_classes_are_cached_and_listed():
    assert tessera.operators.Conv2d is tessera.operators.Conv2d
    assert {"Add", "InplaceAdd", "run_all_gemm_operations_benchmarks"} <= set(dir(tessera.operators))


def test_unknown_inputs_and_invalid_values_are_errors():
    from tessera.operators import Add

    with pytest.raises(TesseraError, match="add has no input or argument of this name: got 'left'"):
        Add(inputs={"left": (3, 3)})
    with pytest.raises(TesseraError, match="unknown dtype"):
        Add(inputs={"dtype": "float31"})
    with pytest.raises(TesseraError, match="initializer"):
        Add(inputs={"initializer": len})
    with pytest.raises(AttributeError, match="Addd"):
        tessera.operators.Addd  # noqa: B018


def test_every_operator_has_a_class_and_every_category_a_runner():
    for name in OPERATORS:
        made = getattr(tessera.operators, "".join(part.capitalize() for part in name.split("_")))
        assert made.operator == name
    for category in group_by_category():
        assert callable(getattr(tessera.operators, f"run_all_{category}_operations_benchmarks"))


@pytest.mark.timeout(100)
def test_a_category_prints_a_line_for_every_operator(capsys):
    from tessera.operators import run_all_rounding_operations_benchmarks

    records = run_all_rounding_operations_benchmarks(size="small", sampling=QUICK)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(records) == len(group_by_category()["rounding"])
    assert all(re.fullmatch(LINE, line) for line in lines)


@pytest.mark.timeout(60)
def test_driver_exit_codes_match_the_command():
    command = [sys.executable, "-m", "tessera.operators", "conv2d", "--backend", "numpy"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "conv2d" in done.stdout


@pytest.mark.timeout(60)
def test_the_driver_runs_as_a_module():
    command = [sys.executable, "-m", "tessera.operators", "add", "inplace_add", "--size", "small", "--budget", "0.02"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [line.split(" - ")[0] for line in done.stdout.splitlines()] == [
        "PT_Add_Forward_Backward_Time",
        "PT_Inplace_Add_Forward_Time",
    ]
