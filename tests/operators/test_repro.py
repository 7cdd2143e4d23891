"""Programs that repeat a record: they run without Tessera and compute the very same numbers."""

from __future__ import annotations

import random
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tessera.errors import TesseraError
from tessera.operators.backends import python_of
from tessera.operators.backends.torch_backend import leaves, to_array
from tessera.operators.cases import cases
from tessera.operators.preparation import callable_of
from tessera.operators.repro import program
from tessera.operators.sources import model, opinfo
from tessera.results.record import Case, Metric, Record

SEED = random.randrange(2**31)
ENVIRONMENT = {"threads": 1, "allocator": "steady", "libraries": {"torch": "2.13.0", "jax": "0.7", "mxnet": "1.9.1"}}


def _program(case: Case) -> str:
    return program(Record(case=case, metrics={"time": Metric(1e-3, "s")}, environment=ENVIRONMENT))


def _names(case: Case, folder: Path) -> dict[str, object]:
    """What a program defines, without being run as one."""
    text = _program(case)
    assert "tessera" not in text.lower()
    path = folder / "again.py"
    path.write_text(text)
    return runpy.run_path(str(path))


def _run(case: Case, folder: Path, python: str = sys.executable) -> list[str]:
    path = folder / "again.py"
    path.write_text(_program(case))
    done = subprocess.run([python, "-I", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def one(name: str, which: str = "forward", **axes: object) -> Case:
    (case, *_) = cases([name], size=["small"], passes=[which], seed=SEED, **axes)  # type: ignore[arg-type]
    return case


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("add", {"dtype": ["bfloat16"]}),
        ("add", {"dtype": ["float16"], "skew": ["denormal"]}),
        ("conv2d", {"inputs": {"data": (2, 16, 9, 9), "stride": 2}}),
        ("cat", {}),
        ("cross_entropy", {}),
        ("linalg_cholesky", {"dtype": ["float64"]}),
        ("sort", {"skew": ["reversed"]}),
        ("add", {"skew": ["strided"], "backend": ["numpy"]}),
        ("add", {"cache": ["cold"]}),
        ("fft_ifft", {}),
    ],
)
def test_it_computes_what_was_measured(name, options, tmp_path):
    case = one(name, **options)
    got = [to_array(leaf) for leaf in leaves(_names(case, tmp_path)["call"]())]  # type: ignore[operator]
    expected = [to_array(leaf) for leaf in leaves(callable_of(case)())]
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize("name", ["matmul", "sort_int64", "dropout", "max_pool2d"])
def test_jax_computes_what_was_measured(name, tmp_path):
    jax = pytest.importorskip("jax")
    case = one(name, backend=["jax"])
    got, expected = (
        jax.tree.leaves(call())
        for call in (_names(case, tmp_path)["call"], callable_of(case))  # type: ignore[operator]
    )
    assert all(np.array_equal(a, b) for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize("which", ["backward", "both"])
@pytest.mark.parametrize("name", ["lstm", "index_select"])
def test_gradients_come_back_to_every_input_on_torch(name, which, tmp_path):
    case = one(name, which)
    got, expected = _names(case, tmp_path)["call"](), callable_of(case)()  # type: ignore[operator]
    assert [part.shape for part in got] == [part.shape for part in expected]


@pytest.mark.parametrize("which", ["backward", "both"])
def test_gradients_come_back_to_every_input_on_jax(which, tmp_path):
    jax = pytest.importorskip("jax")
    case = one("index_select", which, backend=["jax"])
    got, expected = _names(case, tmp_path)["call"](), callable_of(case)()  # type: ignore[operator]
    assert jax.tree.map(np.shape, got) == jax.tree.map(np.shape, expected)


@pytest.mark.parametrize("which", ["forward", "backward"])
def test_a_call_of_a_model_is_made_again_without_the_model(which, tmp_path):
    for case in model.cases("mobilenet_v3_large", image_size=32, passes=[which], seed=SEED)[:12]:
        try:
            expected = model.ready(case).call()
        except TesseraError:
            continue
        again = _names(case, tmp_path)
        if which == "forward":
            again["before"]()  # type: ignore[operator]
            got = again["call"]()  # type: ignore[operator]
            fresh = model.ready(case)
            for a, b in zip(leaves(got), leaves(fresh.call()), strict=True):
                assert np.array_equal(to_array(a), to_array(b)) or "empty" in case.name
        else:
            got = again["call"]()  # type: ignore[operator]
            assert [g.shape for g in got if g is not None] == [g.shape for g in expected if g is not None]


@pytest.mark.parametrize("which", ["forward", "backward", "both"])
@pytest.mark.timeout(60)
def test_it_runs_by_itself_and_says_its_time(tmp_path, which):
    (line,) = _run(one("matmul", which), tmp_path)
    assert 0 < float(line.split()[0]) < 1
    assert line.endswith("call")


@pytest.mark.timeout(60)
def test_a_fused_operator_stands_beside_its_steps(tmp_path):
    lines = _run(one("conv2d_relu", fusion=["library"]), tmp_path)
    assert [line.rpartition(" ")[2] for line in lines] == ["fused", "kept", "unfused"]


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("which", ["forward", "backward", "both"])
def test_a_compiled_operator_runs_by_itself(tmp_path, which):
    assert len(_run(one("gelu", which, backend=["compile"]), tmp_path)) == 1
    if which == "forward":
        assert len(_run(one("multiply_add", fusion=["compile"]), tmp_path)) == 3


@pytest.mark.timeout(100)
@pytest.mark.parametrize("which", ["forward", "backward", "both"])
def test_mxnet_runs_by_itself_where_it_is_set_up(tmp_path, which):
    try:
        python = python_of("mxnet")
    except TesseraError as error:
        pytest.skip(str(error))
    for name in ("matmul", "batch_norm", "argsort"):
        if which == "forward" or name != "argsort":
            assert len(_run(one(name, which, backend=["mxnet"]), tmp_path, python)) == 1


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_what_cannot_be_written_down_is_refused(backend):
    with pytest.raises(TesseraError, match="no program can be written for this case: Tessera builds the graph"):
        _program(one("add", backend=[backend]))


def test_samples_of_torchs_tests_and_whole_models_are_refused():
    (sample,) = opinfo.cases(["add"], size=["small"], passes=["forward"])
    with pytest.raises(TesseraError, match="torch's own tests make its samples: got 'ops/add"):
        _program(sample)
    (whole,) = model.whole(model.cases("resnet18", image_size=32))
    with pytest.raises(TesseraError, match="it is a whole model"):
        _program(whole)
