"""Tests of operators with an untimed set-up, such as quantised operators with packed weights."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tessera.errors import Refused
from tessera.operators import Add, backends
from tessera.operators.cases import cases
from tessera.operators.catalogue import OPERATORS, find_operators
from tessera.operators.preparation import prepare_pass
from tessera.operators.repro import write_program
from tessera.results.record import Metric, Record

QUANTISED = [operator.name for operator in find_operators(category=["quantised"])]


def make_case(name, **params):
    (case,) = cases([name], size=["small"], passes=["forward"], **params)
    return case


@pytest.mark.parametrize("name", QUANTISED)
def test_a_quantised_operator_agrees_with_its_reference_and_has_bytes(name):
    prepared = prepare_pass(make_case(name))
    assert prepared.moved > 0


def test_a_wrong_scale_is_refused():
    with pytest.raises(Refused, match="differs from the reference"):
        prepare_pass(make_case("quantized_linear", inputs={"scale": 7.0}))


def test_other_backends_do_not_offer_operators_with_a_set_up():
    packed = [name for name, operator in OPERATORS.items() if operator.setup]
    assert "quantized_linear" in packed
    for backend in ("compile", "numpy", "jax"):
        assert not set(packed) & set(backends.load_expressions(backend))


def test_the_program_of_a_record_contains_the_set_up(tmp_path):
    case = make_case("quantized_linear")
    text = write_program(Record(case=case, metrics={"time": Metric(1e-5, "s")}, environment={"threads": 1}))
    assert "linear_prepack" in text
    (tmp_path / "program.py").write_text(text)
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


def fill_with_threes(shape):
    import numpy as np

    return np.full(shape, 3.0)


def test_an_initializer_may_be_a_function_of_a_module():
    from tessera.operators.preparation import build_request

    add = Add(inputs={"initializer": fill_with_threes, "lhs": (2, 3), "rhs": (2, 3)})
    assert add.inputs["initializer"] is fill_with_threes
    assert build_request(add.case).arrays["lhs"].tolist() == [[3.0] * 3] * 2
    with pytest.raises(Exception, match="invalid initializer"):
        Add(inputs={"initializer": lambda shape: None})
