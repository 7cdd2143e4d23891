"""Tests of the JAX backend: its expressions compared with the reference, dtypes, and forked processes."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tessera.errors import Refused
from tessera.operators.backends.jax_expressions import list_jax_expressions
from tessera.operators.cases import cases
from tessera.operators.catalogue import OPERATORS
from tessera.operators.preparation import prepare_operator

pytest.importorskip("jax")

NAMES = sorted(list_jax_expressions())
SOME = set(random.sample(NAMES, len(NAMES) // 8))  # a new random choice in every run; the slow run tests all
FORWARD_ONLY = {"linalg_householder_product", "max_pool2d_dilated", "nextafter"}  # JAX has no gradients for these


def prepared(name: str, which: str, **axes):
    seed = random.randrange(2**31)
    print(f"{name} {which} seed={seed} {axes}")
    (case,) = cases([name], backend=["jax"], size=["small"], passes=[which], seed=seed, **axes)
    return prepare_operator(case)[1]


def test_every_expression_is_of_an_operator_of_the_catalogue():
    assert set(NAMES) <= set(OPERATORS)
    assert not [name for name in NAMES if name.startswith("inplace_")]


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in SOME else pytest.mark.slow) for n in NAMES])
def test_jax_matches_the_reference_forward_and_backward(name):
    dtype = [OPERATORS[name].dtypes[0]]
    prepared(name, "forward", dtype=dtype).call()
    if name in FORWARD_ONLY:
        with pytest.raises(Refused, match="not implemented"):
            prepared(name, "backward", dtype=dtype)
    elif OPERATORS[name].differentiable:
        prepared_pass = prepared(name, "backward", dtype=dtype)
        assert prepared_pass.gradients
        prepared_pass.call()


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
@pytest.mark.parametrize("name", ["add", "matmul", "conv2d", "max_pool2d", "layer_norm", "softmax", "sum", "sort"])
def test_it_computes_in_the_dtype_of_the_case(name, dtype):
    for which in ("forward", "backward"):
        import jax

        prepared_pass = prepared(name, which, dtype=[dtype])
        assert {str(leaf.dtype) for leaf in jax.tree.leaves(prepared_pass.call()) if leaf.dtype.kind != "i"} == {dtype}


@pytest.mark.parametrize("name", ["multiply", "topk", "linalg_vecdot", "matmul_complex"])
def test_both_passes_in_one_program_give_the_gradients_of_the_backward_pass(name):
    (case,) = cases([name], backend=["jax"], size=["small"], passes=["backward"])
    (both_case,) = cases([name], backend=["jax"], size=["small"], passes=["both"])
    backward, both = (prepare_operator(one)[1] for one in (case, both_case))
    assert backward.gradients.keys() == both.gradients.keys()
    for name, gradient in backward.gradients.items():
        np.testing.assert_allclose(both.gradients[name], gradient, rtol=1e-5, atol=1e-5)
    outputs, (gradients,) = both.call()
    assert len(outputs) == len(both.outputs)
    assert gradients.keys() == both.gradients.keys()


def test_int64_inputs_keep_64_bits():
    assert prepared("sort_int64", "forward").outputs[0].dtype == np.int64
    assert prepared("sort", "forward").outputs[0].dtype == np.float32


def test_non_contiguous_input_is_refused_by_jax():
    with pytest.raises(Refused, match="to its own layout"):
        prepared("add", "forward", skew=["strided"])


def test_unsupported_operator_error_names_supporting_backends():
    with pytest.raises(
        Refused, match="JAX does not support the operator inplace_add: use a backend that supports it: torch"
    ):
        prepared("inplace_add", "forward")


PROGRAM = """
import os
from tessera.launch.fresh import FreshProcess
from tessera.operators.cases import cases
from tessera.operators.bench import preload
case, = cases(["matmul"], backend=["jax"], size=["small"], passes=["backward"])
preload(case)
assert len(os.listdir("/proc/self/task")) == 1, "preloading started threads"
for _ in range(2):
    with FreshProcess() as fresh:
        print(fresh.call("tests.operators.backends.test_jax:in_a_child", case))
"""


def in_a_child(case) -> int:
    """Run the case once, and return the number of compute threads of XLA."""
    prepare_operator(case)[1].call()
    return sum("Eigen" in path.read_text() for path in Path("/proc/self/task").glob("*/comm"))


@pytest.mark.timeout(120)
def test_a_process_forked_after_preloading_computes_on_one_thread_without_a_warning():
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(["src", "."])}
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert done.stdout.split() == ["1", "1"]
