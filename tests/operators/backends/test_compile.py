"""Tests of the torch.compile backend: compiled passes, refused operators, and compilation in a forked process."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import numpy as np
import psutil
import pytest

from tessera.errors import Refused
from tessera.operators.cases import cases
from tessera.operators.catalogue import OPERATORS
from tessera.operators.preparation import prepare_operator

FEW = ("multiply", "softmax", "conv2d", "inplace_add")
MORE = (
    "add",
    "sum_rows",
    "sort",
    "index_rows",
    "cat",
    "permute_contiguous",
    "matmul",
    "linear",
    "max_pool2d",
    "batch_norm",
    "layer_norm",
    "gelu",
    "cross_entropy",
    "scaled_dot_product_attention",
    "embedding",
    "conv2d_batch_norm_relu",
    "fft_rfft",
    "linalg_cholesky",
    "dropout",
    "adam",
)


def prepared(name: str, which: str, **axes):
    seed = random.randrange(2**31)
    print(f"{name} {which} seed={seed} {axes}")
    (case,) = cases([name], backend=["compile"], size=["small"], passes=[which], seed=seed, **axes)
    return prepare_operator(case)[1]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [*FEW, *(pytest.param(name, marks=pytest.mark.slow) for name in MORE)])
def test_compiled_operators_match_the_reference(name):
    for which in ("forward", "backward", "both") if OPERATORS[name].differentiable else ("forward",):
        prepared_pass = prepared(name, which)
        prepared_pass.call()
        assert bool(prepared_pass.gradients) == (which != "forward")


def test_timed_call_compiles_nothing_and_leaves_no_process():
    import torch._dynamo
    from torch._dynamo.utils import counters

    others = set(psutil.Process().children(recursive=True))
    prepared_pass = prepared("tanh", "backward")
    before = counters["stats"]["unique_graphs"]
    assert before
    with torch._dynamo.config.patch(error_on_recompile=True):
        first, second = prepared_pass.call(), prepared_pass.call()
    assert torch.equal(*(result[0] for result in (first, second)))
    assert counters["stats"]["unique_graphs"] == before
    assert not set(psutil.Process().children(recursive=True)) - others


def test_both_give_the_gradients_of_the_backward_pass():
    both_cases = cases(["sinh"], backend=["compile"], size=["small"], passes=["backward", "both"])
    one, other = (prepare_operator(case)[1].gradients["data"] for case in both_cases)
    np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("name", ["tolist", "to_sparse"])
def test_operator_without_a_full_graph_is_refused_in_one_line(name):
    with pytest.raises(Refused, match=f"cannot compile {name} as one graph") as refused:
        prepared(name, "forward")
    assert "\n" not in str(refused.value)


PROGRAM = """
import os
from tessera.launch.fresh import FreshProcess
from tessera.operators.cases import cases
from tessera.operators.bench import preload
case, = cases(["exp"], backend=["compile"], size=["small"], passes=["forward"])
preload(case)
assert len(os.listdir("/proc/self/task")) == 1, "preloading started threads"
with FreshProcess() as fresh:
    print(fresh.call("tests.operators.backends.test_compile:in_a_child", case))
"""


def in_a_child(case) -> int:
    """Run the case once, and return the number of child processes that still exist."""
    prepare_operator(case)[1].call()
    return len(psutil.Process().children(recursive=True))


@pytest.mark.timeout(240)
def test_a_process_forked_after_preloading_compiles_in_a_cache_of_its_own(tmp_path):
    paths = {"PYTHONPATH": os.pathsep.join(["src", "."]), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | {"OMP_NUM_THREADS": "1"} | paths,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0"]
    assert any(tmp_path.rglob("*.cpp"))
