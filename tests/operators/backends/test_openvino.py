"""Tests of the OpenVINO backend: expressions, executed layers, outputs, and refused cases."""

from __future__ import annotations

import random
import re
from importlib.util import find_spec

import numpy as np
import pytest

from tessera.errors import Refused
from tessera.operators.cases import cases
from tessera.operators.catalogue import OPERATORS
from tessera.operators.preparation import prepare_operator
from tessera.results.record import Case
from tests.operators.backends.launches import check_forked_launches, count_threads_after_preload

if find_spec("openvino") is None:
    pytest.skip("openvino is not installed", allow_module_level=True)

from tessera.operators.backends.openvino_backend import FLOAT_TYPES, OpenvinoCall, compile_model, load_operators
from tessera.operators.backends.openvino_expressions import NATIVE_EXPRESSIONS, list_openvino_expressions

TABLE = list_openvino_expressions()
SOME = sorted(random.sample(sorted(TABLE), len(TABLE) // 3))


def one(name: str, **axes) -> Case:
    asked = {"size": ["small"], "passes": ["forward"], "seed": random.randrange(2**31), **axes}
    (case,) = cases([name], backend=["openvino"], **asked)
    print(case.key)  # shows the seed if a test fails
    return case


def prepare_call(name: str, **axes) -> OpenvinoCall:
    """Prepare an operator on OpenVINO, check its output, and return its call."""
    call = prepare_operator(one(name, **axes))[1].call
    assert isinstance(call, OpenvinoCall)
    return call


def list_executed_nodes(run: OpenvinoCall) -> list[str]:
    """Return the layer types that OpenVINO executes, without inputs, outputs, constants and layout conversions."""
    nodes = [op.get_rt_info()["layerType"].astype(str) for op in run.compiled.get_runtime_model().get_ops()]
    return [kind for kind in nodes if kind not in ("Input", "Output", "Const", "Reorder")]


def test_the_table_names_operators_of_the_catalogue_and_of_openvino():
    assert set(TABLE) <= set(OPERATORS)
    kinds = {kind for expression in NATIVE_EXPRESSIONS.values() for kind in re.findall(r"\bop\.(\w+)", expression)}
    assert kinds <= set(vars(load_operators()))
    assert all(re.search(r"\bop\.", expression) for expression in TABLE.values())


def check_result_and_nodes(name):
    assert list_executed_nodes(prepare_call(name))


@pytest.mark.parametrize("name", SOME)
def test_some_operators_match_the_reference_and_are_not_compiled_away(name):
    check_result_and_nodes(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TABLE))
def test_every_operator_matches_the_reference_and_is_not_compiled_away(name):
    check_result_and_nodes(name)


@pytest.mark.parametrize("name", ["conv2d_relu", "conv2d_batch_norm", "conv2d_batch_norm_relu", "conv2d_add_relu"])
def test_fused_operators_are_fused(name):
    nodes = list_executed_nodes(prepare_call(name))
    assert [kind for kind in nodes if kind != "Reshape"] == ["Convolution"]  # a Reshape of the constant bias is allowed


def test_weights_are_parameters_unless_fused():
    assert set(prepare_call("conv2d").built.tensors) == {"data", "weight"}
    assert set(prepare_call("conv2d_relu").built.tensors) == {"data"}


def test_a_call_reads_the_memory_of_its_inputs():
    run = prepare_call("negative")
    run.built.tensors["data"].data[:] = 3.0
    run()
    assert np.all(run.read_outputs()[0] == -3.0)


def test_float32_is_computed_in_float32_with_the_given_threads():
    compiled = compile_model(prepare_call("matmul").built.model, dtype="float32", threads=1)
    assert compiled.get_property("INFERENCE_PRECISION_HINT") == FLOAT_TYPES["float32"]
    assert compiled.get_property("INFERENCE_NUM_THREADS") == 1


@pytest.mark.parametrize(
    ("name", "axes", "words"),
    [
        ("add", {"passes": ["both"]}, "OpenVINO has no backward pass"),
        ("add", {"skew": ["strided"]}, "OpenVINO would copy non-contiguous inputs"),
        ("add", {"dtype": ["float64"]}, "OpenVINO would compute this dtype in float32: got 'float64'"),
        ("fmax", {}, "OpenVINO does not support the operator fmax"),
    ],
)
def test_unsupported_cases_are_refused_in_one_line(name, axes, words):
    with pytest.raises(Refused, match=words) as refusal:
        prepare_operator(one(name, **axes))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["add", "matmul", "softmax"])
def test_other_dtypes(name, dtype):
    prepare_operator(one(name, dtype=[dtype]))


def test_importing_it_starts_no_thread():
    assert count_threads_after_preload("openvino") == 1


@pytest.mark.timeout(60)
@pytest.mark.parametrize("threads", [1, 2])
def test_cases_run_in_processes_forked_after_the_import(threads):
    check_forked_launches([one("conv2d"), one("softmax")], threads)
