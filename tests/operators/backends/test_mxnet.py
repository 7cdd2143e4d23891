"""Tests of the MXNet backend in its own interpreter: expressions, measured and refused cases, and threads."""

from __future__ import annotations

import ast
import builtins
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import tessera
from tessera.errors import Refused, TesseraError
from tessera.launch import LaunchConfig
from tessera.launch.worker import RunContext
from tessera.measure.samples import Sampling
from tessera.operators import backends
from tessera.operators.backends.setup import get_own_python, setup_backend
from tessera.operators.cases import cases
from tessera.operators.catalogue import OPERATORS
from tessera.results.record import Case, Record
from tessera.suites.features import get_feature
from tessera.suites.worker_pools import WorkerPools

TABLE = backends.load_expressions("mxnet")
ONCE = Sampling(warmup=0, iterations=3)

# operators without a gradient, or with a wrong gradient, in MXNet
WITHOUT_GRADIENT = {
    *("std", "std_rows", "var", "var_rows", "var_cols", "quantile", "linalg_eigvalsh"),  # gradient is zero
    *("atleast_1d", "atleast_2d", "atleast_3d", "masked_fill"),
    *("copysign_scalar", "pad_reflect_1d"),  # MXNet raises an error
    *("selu", "rot90", "linalg_pinv"),  # gradient is wrong
}

# program that prints how many threads of a forked process use CPU time (clock ticks) in an operator
BUSY_THREADS = """\
import os
from pathlib import Path
from tessera.operators import backends

def ticks():
    threads = {path.parent.name: path.read_text() for path in Path("/proc/self/task").glob("*/stat")}
    return {thread: sum(map(int, stat.rpartition(")")[2].split()[11:13])) for thread, stat in threads.items()}

backends.load_backend("mxnet").preload()
if os.fork() == 0:
    import mxnet as mx
    data = mx.nd.zeros((4096, 4096))
    data.wait_to_read()
    before = ticks()
    for _ in range(8):
        mx.nd.sum(data, axis=1).wait_to_read()
    print(sum(count - before.get(thread, 0) > 4 for thread, count in ticks().items()), flush=True)
    os._exit(0)
os.wait()
"""


def measure_on_pools(pools: WorkerPools, case: Case) -> Record:
    hooks = get_feature("ops")
    (record,) = pools.get_workers(case).run("tessera.suites.worker:measure_case", hooks, case, ONCE, RunContext())
    return record


def one(name: str, which: str, **axes) -> Case:
    (case,) = cases([name], backend=["mxnet"], size=["small"], passes=[which], **axes)
    return case


@pytest.fixture
def python() -> str:
    """Return the path of MXNet's interpreter; skip the test if it is not set up."""
    try:
        return str(get_own_python("mxnet"))
    except TesseraError as error:
        pytest.skip(str(error))


@pytest.fixture
def pools(python) -> Iterator[WorkerPools]:
    with WorkerPools(LaunchConfig()) as started:
        yield started


def run_code(python: str, code: str, **env: str) -> str:
    where = {**os.environ, "PYTHONPATH": str(Path(tessera.__file__).parents[1]), **env}
    done = subprocess.run([python, "-c", code], env=where, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


def test_it_has_more_operators_than_its_own_benchmark():
    assert len(TABLE) >= 240
    assert set(TABLE) <= set(OPERATORS)
    assert set(TABLE) >= WITHOUT_GRADIENT


def test_expressions_use_only_their_inputs_and_mxnet_names():
    given = {"mx", "nd", "mnp", "npx", "shapes", *dir(builtins)}
    for name, expression in TABLE.items():
        used = {node.id for node in ast.walk(ast.parse(expression)) if isinstance(node, ast.Name)}
        assert used <= given | set(OPERATORS[name].list_input_names()), name
        assert used & {"nd", "mnp", "npx", *OPERATORS[name].get_inputs("small")}, name


@pytest.mark.timeout(60)
def test_no_expression_falls_back_to_numpy(python):
    listed = "from mxnet.numpy import fallback, fallback_linalg; print([fallback.__all__, fallback_linalg.__all__])"
    plain, linear = ast.literal_eval(run_code(python, listed))
    assert {"searchsorted", "count_nonzero"} < set(plain)
    called = [re.findall(r"\bmnp\.([\w.]+)", expression) for expression in TABLE.values()]
    fallbacks = {*plain, *(f"linalg.{name}" for name in linear)}
    assert fallbacks.isdisjoint(name for names in called for name in names)


@pytest.mark.timeout(60)
def test_every_pass_is_measured_in_mxnets_interpreter(pools):
    for name, which in (("add", "forward"), ("conv2d", "both"), ("matmul", "backward"), ("batch_norm", "forward")):
        record = measure_on_pools(pools, one(name, which))
        assert record.status == "ok"
        assert len(record.values) == 3
        assert record.environment["threads"] == 1
        libraries = record.environment["libraries"]
        assert libraries["mxnet"] == "1.9.1"
        assert libraries["numpy"].startswith("1.23.")
        assert "torch" not in libraries


@pytest.mark.timeout(60)
def test_unsupported_cases_are_refused_with_the_reason(pools):
    for case, reason in (
        (one("add", "forward", dtype=["bfloat16"]), "got 'bfloat16'; allowed: float32, float64, float16"),
        (
            one("add", "forward", skew=["strided"]),
            "MXNet would copy non-contiguous inputs to its own layout: got 'lhs with strides",
        ),
        (
            one("copysign_scalar", "backward"),
            "MXNet does not support copysign_scalar on these inputs: MXNetError: Check",
        ),
        (one("var", "backward"), "the gradient of var differs"),
    ):
        with pytest.raises(Refused, match=re.escape(reason)):
            measure_on_pools(pools, case)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_forked_process_uses_the_threads_it_is_given(python, threads):
    assert int(run_code(python, BUSY_THREADS, OMP_NUM_THREADS=str(threads))) == threads


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_it_can_be_set_up_and_every_operator_passes_its_check(monkeypatch, tmp_path):
    monkeypatch.setenv("TESSERA_BACKENDS", str(tmp_path))
    said: list[str] = []
    python = setup_backend("mxnet", said.append)
    assert any("mxnet-1.9.1" in line for line in said)
    assert python == get_own_python("mxnet")
    asked_for = cases(sorted(TABLE), backend=["mxnet"], size=["small"], passes=["forward", "backward", "both"])
    refused = {}
    with WorkerPools(LaunchConfig()) as pools:
        for case in asked_for:
            try:
                assert measure_on_pools(pools, case).values
            except TesseraError as error:
                refused[case.name, case.params["pass"]] = str(error)
    assert set(refused) == {(name, which) for name in WITHOUT_GRADIENT for which in ("backward", "both")}, refused
