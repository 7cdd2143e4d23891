"""OpenVINO: what its table says, what it runs, what it gives and what it refuses."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

from tessera.errors import Refused
from tessera.launch import LaunchConfig
from tessera.measure.samples import Sampling
from tessera.operators.backends.openvino_expressions import openvino_expressions
from tessera.operators.cases import cases
from tessera.operators.catalogue import OPERATORS
from tessera.operators.preparation import prepare, request_of
from tessera.results.record import Case
from tessera.suites.crews import Crews
from tessera.suites.features import feature

openvino = pytest.importorskip("openvino")

from tessera.operators.backends.inference_only import stored  # noqa: E402
from tessera.operators.backends.openvino_backend import compiled_model  # noqa: E402
from tessera.operators.backends.openvino_graph import Built, build, newest_operators  # noqa: E402

TABLE = openvino_expressions()
SOME = sorted(random.sample(sorted(TABLE), len(TABLE) // 3))


def one(name: str, **axes) -> Case:
    asked = {"size": ["small"], "passes": ["forward"], "seed": random.randrange(2**31), **axes}
    (case,) = cases([name], backend=["openvino"], **asked)
    print(case.key)  # the seed of a failure
    return case


def built(name: str) -> Built:
    request = request_of(one(name))
    kinds = {key: value.kind for key, value in request.inputs.items()}
    arrays = {key: stored(array, kinds[key], request.dtype) for key, array in request.arrays.items()}
    return build(TABLE[name], arrays, kinds, request.attributes, dtype=request.dtype)


def executed(name: str) -> list[str]:
    """The kinds of layers that OpenVINO runs, without the model's ends."""
    compiled = compiled_model(built(name).model, dtype="float32", threads=1)
    found = [op.get_rt_info()["layerType"].astype(str) for op in compiled.get_runtime_model().get_ops()]
    return [kind for kind in found if kind not in ("Input", "Output", "Const")]


def test_the_table_names_operators_of_the_catalogue_and_of_openvino():
    assert set(TABLE) <= set(OPERATORS)
    kinds = {kind for expression in TABLE.values() for kind in re.findall(r"\bop\.(\w+)", expression)}
    assert kinds <= set(vars(newest_operators()))
    assert all(re.search(r"\bop\.", expression) for expression in TABLE.values())


@pytest.mark.parametrize("name", SOME)
def test_some_operators_give_the_references_numbers(name):
    prepare(one(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TABLE))
def test_every_operator_gives_the_references_numbers(name):
    prepare(one(name))


@pytest.mark.parametrize("name", SOME)
def test_compiling_leaves_something_to_run(name):
    assert executed(name)


@pytest.mark.parametrize("name", ["conv2d_relu", "conv2d_batch_norm", "conv2d_batch_norm_relu", "conv2d_add_relu"])
def test_fused_operators_are_fused(name):
    found = [kind for kind in executed(name) if kind != "Reorder"]
    assert found == ["Convolution"]


def test_weights_are_parameters_unless_fused():
    assert set(built("conv2d").tensors) == {"data", "weight"}
    assert set(built("conv2d_relu").tensors) == {"data"}


def test_a_call_reads_the_memory_of_its_inputs():
    made = built("negative")
    compiled = compiled_model(made.model, dtype="float32", threads=1)
    inference = compiled.create_infer_request()
    inference.set_input_tensor(0, made.tensors["data"])
    made.tensors["data"].data[:] = 3.0
    inference.infer(share_outputs=True)
    assert np.all(inference.get_output_tensor(0).data == -3.0)


def test_float32_is_computed_in_float32_by_the_threads_asked_for():
    compiled = compiled_model(built("matmul").model, dtype="float32", threads=1)
    assert compiled.get_property("INFERENCE_PRECISION_HINT") == openvino.Type.f32
    assert compiled.get_property("INFERENCE_NUM_THREADS") == 1


@pytest.mark.parametrize(
    ("name", "axes", "words"),
    [
        ("add", {"passes": ["both"]}, "OpenVINO does not differentiate"),
        ("add", {"skew": ["strided"]}, "OpenVINO copies strided arrays"),
        ("add", {"dtype": ["float64"]}, "OpenVINO would compute in float32: got 'float64'"),
        ("fmax", {}, "OpenVINO has no fmax"),
    ],
)
def test_what_it_lacks_is_refused_in_one_line(name, axes, words):
    with pytest.raises(Refused, match=words) as refusal:
        prepare(one(name, **axes))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["add", "matmul", "softmax"])
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
