"""OpenVINO: what its table says, what it runs, what it gives and what it refuses."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from tessera.errors import Refused
from tessera.launch import LaunchConfig
from tessera.measure.samples import Sampling
from tessera.operators.backends.openvino_expressions import openvino_expressions
from tessera.operators.cases import cases
from tessera.operators.catalogue import OPERATORS
from tessera.operators.preparation import prepare
from tessera.results.record import Case
from tessera.suites.crews import Crews
from tessera.suites.features import feature

if find_spec("openvino") is None:
    pytest.skip("openvino is not installed", allow_module_level=True)

from tessera.operators.backends.openvino_backend import Run, compiled_model
from tessera.operators.backends.openvino_graph import FLOATS, newest_operators

TABLE = openvino_expressions()
SOME = sorted(random.sample(sorted(TABLE), len(TABLE) // 3))


def one(name: str, **axes) -> Case:
    asked = {"size": ["small"], "passes": ["forward"], "seed": random.randrange(2**31), **axes}
    (case,) = cases([name], backend=["openvino"], **asked)
    print(case.key)  # the seed of a failure
    return case


def ready(name: str, **axes) -> Run:
    """An operator checked and ready."""
    call = prepare(one(name, **axes))[1].call
    assert isinstance(call, Run)
    return call


def executed(run: Run) -> list[str]:
    """The kinds of layers that OpenVINO runs, without the model's ends and changes of layout."""
    found = [op.get_rt_info()["layerType"].astype(str) for op in run.compiled.get_runtime_model().get_ops()]
    return [kind for kind in found if kind not in ("Input", "Output", "Const", "Reorder")]


def test_the_table_names_operators_of_the_catalogue_and_of_openvino():
    assert set(TABLE) <= set(OPERATORS)
    kinds = {kind for expression in TABLE.values() for kind in re.findall(r"\bop\.(\w+)", expression)}
    assert kinds <= set(vars(newest_operators()))
    assert all(re.search(r"\bop\.", expression) for expression in TABLE.values())


def right_and_not_compiled_away(name):
    assert executed(ready(name))


@pytest.mark.parametrize("name", SOME)
def test_some_operators_give_the_references_numbers_and_are_not_compiled_away(name):
    right_and_not_compiled_away(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TABLE))
def test_every_operator_gives_the_references_numbers_and_is_not_compiled_away(name):
    right_and_not_compiled_away(name)


@pytest.mark.parametrize("name", ["conv2d_relu", "conv2d_batch_norm", "conv2d_batch_norm_relu", "conv2d_add_relu"])
def test_fused_operators_are_fused(name):
    found = executed(ready(name))
    assert [kind for kind in found if kind != "Reshape"] == ["Convolution"]  # what is reshaped is the known bias


def test_weights_are_parameters_unless_fused():
    assert set(ready("conv2d").built.tensors) == {"data", "weight"}
    assert set(ready("conv2d_relu").built.tensors) == {"data"}


def test_a_call_reads_the_memory_of_its_inputs():
    run = ready("negative")
    run.built.tensors["data"].data[:] = 3.0
    run()
    assert np.all(run.outputs()[0] == -3.0)


def test_float32_is_computed_in_float32_by_the_threads_asked_for():
    compiled = compiled_model(ready("matmul").built.model, dtype="float32", threads=1)
    assert compiled.get_property("INFERENCE_PRECISION_HINT") == FLOATS["float32"]
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


def test_importing_it_starts_no_thread():
    program = (
        "import os; from tessera.operators import backends; backends.backend('openvino').preload();"
        " print(len(os.listdir('/proc/self/task')))"
    )
    alone = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    told = subprocess.run([sys.executable, "-c", program], env=alone, capture_output=True, check=True, timeout=60)
    assert int(told.stdout) == 1


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
