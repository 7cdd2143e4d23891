"""Tests of the ONNX Runtime backend: expressions, optimised graphs, outputs, and refused cases."""

from __future__ import annotations

import random
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tessera.errors import Refused
from tessera.operators.backends.backend import PreparedOperator
from tessera.operators.backends.onnx_expressions import list_onnx_expressions
from tessera.operators.cases import cases
from tessera.operators.catalogue import OPERATORS
from tessera.operators.preparation import prepare_operator
from tessera.results.record import Case
from tests.operators.backends.launches import check_forked_launches, count_threads_after_preload

onnx = pytest.importorskip("onnx")
if find_spec("onnxruntime") is None:
    pytest.skip("onnxruntime is not installed", allow_module_level=True)

from tessera.operators.backends.onnxruntime_backend import OnnxRuntimeCall, find_newest_opset, open_session  # noqa: E402

TABLE = list_onnx_expressions()


def one(name: str, **axes) -> Case:
    asked = {"size": ["small"], "passes": ["forward"], "seed": random.randrange(2**31), **axes}
    (case,) = cases([name], backend=["onnxruntime"], **asked)
    print(case.key)  # shows the seed if a test fails
    return case


def list_optimized_nodes(prepared: PreparedOperator, path: Path) -> list[str]:
    """Return the node types of the graph that ONNX Runtime has optimised, without layout conversions."""
    assert isinstance(prepared.call, OnnxRuntimeCall)
    open_session(prepared.call.model.proto, threads=1, optimized=str(path / "graph.onnx"))
    kinds = [node.op_type for node in onnx.load(path / "graph.onnx").graph.node]
    return [kind for kind in kinds if not kind.startswith("Reorder")]


def test_the_table_names_operators_of_the_catalogue_and_of_onnx():
    assert set(TABLE) <= set(OPERATORS)
    kinds = {kind for expression in TABLE.values() for kind in re.findall(r"\bop\.(\w+)", expression)}
    assert all(onnx.defs.get_schema(kind, find_newest_opset()) for kind in kinds)  # raises if unknown to ONNX
    assert all(re.search(r"\bop\.", expression) for expression in TABLE.values())


@pytest.mark.parametrize("name", sorted(TABLE))
def test_every_operator_matches_the_reference_and_is_not_optimised_away(name, tmp_path):
    _, prepared = prepare_operator(one(name))
    assert list_optimized_nodes(prepared, tmp_path)


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        ("conv2d_relu", "Relu"),
        ("conv2d_batch_norm", "BatchNormalization"),
        ("conv2d_batch_norm_relu", "BatchNormalization"),
        ("linear_relu", "Relu"),
    ],
)
def test_fused_operators_are_fused(name, gone, tmp_path):
    nodes = list_optimized_nodes(prepare_operator(one(name))[1], tmp_path)
    assert gone not in nodes
    assert len(nodes) == 1


def test_weights_are_inputs_of_the_graph_unless_fused():
    assert set(prepare_operator(one("conv2d"))[1].call.model.arrays) == {"data", "weight"}
    assert set(prepare_operator(one("conv2d_relu"))[1].call.model.arrays) == {"data"}


def test_call_overwrites_its_outputs():
    _, prepared = prepare_operator(one("add"))
    (output,) = prepared.outputs
    before = output.copy()
    output[:] = np.nan
    prepared.call()
    assert np.array_equal(output, before)


@pytest.mark.parametrize(
    ("name", "axes", "words"),
    [
        ("add", {"passes": ["both"]}, "ONNX Runtime has no backward pass"),
        ("add", {"skew": ["strided"]}, "ONNX Runtime would copy non-contiguous inputs"),
        ("erf", {"dtype": ["float64"]}, "ONNX Runtime does not support erf in float64: .*Erf"),
        ("add", {"dtype": ["bfloat16"]}, "ONNX Runtime does not support add in bfloat16: .*Add"),
        ("fmax", {}, "ONNX Runtime does not support the operator fmax"),
    ],
)
def test_unsupported_cases_are_refused_in_one_line(name, axes, words):
    with pytest.raises(Refused, match=words) as refusal:
        prepare_operator(one(name, **axes))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(("name", "dtype"), [("matmul", "float64"), ("add", "float16"), ("cat", "bfloat16")])
def test_other_dtypes(name, dtype):
    prepare_operator(one(name, dtype=[dtype]))


def test_importing_it_starts_no_thread():
    assert count_threads_after_preload("onnxruntime") == 1


@pytest.mark.timeout(60)
@pytest.mark.parametrize("threads", [1, 2])
def test_cases_run_in_processes_forked_after_the_import(threads):
    check_forked_launches([one("conv2d"), one("softmax")], threads)
