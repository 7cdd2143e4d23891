"""ONNX Runtime: what its table says, what its graphs hold, what it gives and what it refuses."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

from tessera.errors import Refused
from tessera.launch import LaunchConfig
from tessera.measure.samples import Sampling
from tessera.operators.backends.onnx_expressions import onnx_expressions
from tessera.operators.preparation import prepare, request_of
from tessera.operators.cases import cases
from tessera.operators.catalogue import OPERATORS
from tessera.results.record import Case
from tessera.suites.crews import Crews
from tessera.suites.features import feature

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from tessera.operators.backends.inference_only import stored  # noqa: E402
from tessera.operators.backends.onnx_graph import Built, build  # noqa: E402
from tessera.operators.backends.onnxruntime_backend import newest_opset, open_session  # noqa: E402

TABLE = onnx_expressions()
SOME = sorted(random.sample(sorted(TABLE), len(TABLE) // 3))


def one(name: str, **axes) -> Case:
    asked = {"size": ["small"], "passes": ["forward"], "seed": random.randrange(2**31), **axes}
    (case,) = cases([name], backend=["onnxruntime"], **asked)
    print(case.key)  # the seed of a failure
    return case


def built(name: str) -> Built:
    request = request_of(one(name))
    kinds = {key: value.kind for key, value in request.inputs.items()}
    arrays = {key: stored(array, kinds[key], request.dtype) for key, array in request.arrays.items()}
    return build(TABLE[name], arrays, kinds, request.attributes, opset=newest_opset(), dtype=request.dtype)


def optimized(name: str, path) -> list[str]:
    """The nodes that ONNX Runtime is left with."""
    open_session(built(name).model, threads=1, optimized=str(path))
    return [node.op_type for node in onnx.load(path).graph.node]


def test_the_table_names_operators_of_the_catalogue_and_of_onnx():
    assert set(TABLE) <= set(OPERATORS)
    kinds = {kind for expression in TABLE.values() for kind in re.findall(r"\bop\.(\w+)", expression)}
    known = {schema.name for schema in onnx.defs.get_all_schemas() if schema.since_version <= newest_opset()}
    assert kinds <= known
    assert all(re.search(r"\bop\.", expression) for expression in TABLE.values())


@pytest.mark.parametrize("name", SOME)
def test_some_operators_give_the_references_numbers(name):
    prepare(one(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TABLE))
def test_every_operator_gives_the_references_numbers(name):
    prepare(one(name))


@pytest.mark.parametrize("name", SOME)
def test_optimising_leaves_something_to_run(name, tmp_path):
    assert optimized(name, tmp_path / "graph.onnx")


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
    found = optimized(name, tmp_path / "graph.onnx")
    assert gone not in found
    assert len(found) == 1


def test_weights_are_inputs_of_the_graph_unless_fused():
    assert {one.name for one in built("conv2d").model.graph.input} == {"data", "weight"}
    assert {one.name for one in built("conv2d_relu").model.graph.input} == {"data"}


def test_a_call_writes_its_outputs_anew():
    _, prepared = prepare(one("add"))
    (output,) = prepared.outputs
    before = output.copy()
    output[:] = np.nan
    prepared.call()
    assert np.array_equal(output, before)


@pytest.mark.parametrize(
    ("name", "axes", "words"),
    [
        ("add", {"passes": ["both"]}, "ONNX Runtime does not differentiate"),
        ("add", {"skew": ["strided"]}, "ONNX Runtime copies strided arrays"),
        ("erf", {"dtype": ["float64"]}, "ONNX Runtime does not run this in float64: .*Erf"),
        ("add", {"dtype": ["bfloat16"]}, "ONNX Runtime does not run this in bfloat16: .*Add"),
        ("fmax", {}, "ONNX Runtime has no fmax"),
    ],
)
def test_what_it_lacks_is_refused_in_one_line(name, axes, words):
    with pytest.raises(Refused, match=words) as refusal:
        prepare(one(name, **axes))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(("name", "dtype"), [("matmul", "float64"), ("add", "float16"), ("to_bfloat16", "float32")])
def test_other_dtypes(name, dtype):
    prepare(one(name, dtype=[dtype]))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("threads", [1, 2])
def test_cases_run_in_processes_forked_after_the_import(threads):
    doors, sampling = feature("ops"), Sampling(warmup=0, iterations=3)
    with Crews(LaunchConfig(threads=threads)) as crews:
        for name in ("conv2d", "softmax"):
            case = one(name)
            (record,) = crews.of(case).run("tessera.suites.worker:measure", doors.run, doors.preload, case, sampling)
            assert record.status == "ok"
            assert record.environment["threads"] == threads
            assert len(record.launches[0].values) == 3
