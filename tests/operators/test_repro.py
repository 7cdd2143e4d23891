"""Tests of the programs that repeat a record: they run without Tessera and compute identical numbers."""

from __future__ import annotations

import random
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tessera.errors import TesseraError
from tessera.operators.backends import find_own_python
from tessera.operators.backends.torch_backend import flatten_leaves, to_array
from tessera.operators.bench import build_callable
from tessera.operators.cases import cases
from tessera.operators.repro import write_program
from tessera.operators.sources import model, opinfo
from tessera.results.record import Case, Metric, Record

SEED = random.randrange(2**31)
ENVIRONMENT = {"threads": 1, "allocator": "steady", "libraries": {"torch": "2.13.0", "jax": "0.7", "mxnet": "1.9.1"}}


def _write_program(case: Case) -> str:
    return write_program(Record(case=case, metrics={"time": Metric(1e-3, "s")}, environment=ENVIRONMENT))


def _list_names(case: Case, folder: Path) -> dict[str, object]:
    """Write the program of a case, import it without running its main part, and return its global names."""
    text = _write_program(case)
    assert "tessera" not in text.lower()
    path = folder / "again.py"
    path.write_text(text)
    return runpy.run_path(str(path))


def _run(case: Case, folder: Path, python: str = sys.executable) -> list[str]:
    path = folder / "again.py"
    path.write_text(_write_program(case))
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
def test_program_computes_the_measured_result(name, options, tmp_path):
    case = one(name, **options)
    got = [to_array(leaf) for leaf in flatten_leaves(_list_names(case, tmp_path)["call"]())]  # type: ignore[operator]
    expected = [to_array(leaf) for leaf in flatten_leaves(build_callable(case)())]
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize("name", ["matmul", "sort_int64", "dropout", "max_pool2d"])
def test_jax_program_computes_the_measured_result(name, tmp_path):
    jax = pytest.importorskip("jax")
    case = one(name, backend=["jax"])
    got, expected = (
        jax.tree.leaves(call())
        for call in (_list_names(case, tmp_path)["call"], build_callable(case))  # type: ignore[operator]
    )
    assert all(np.array_equal(a, b) for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize("which", ["backward", "both"])
@pytest.mark.parametrize("name", ["lstm", "index_select"])
def test_torch_program_computes_gradients_of_every_input(name, which, tmp_path):
    case = one(name, which)
    got, expected = _list_names(case, tmp_path)["call"](), build_callable(case)()  # type: ignore[operator]
    assert [part.shape for part in got] == [part.shape for part in expected]


@pytest.mark.parametrize("which", ["backward", "both"])
def test_jax_program_computes_gradients_of_every_input(which, tmp_path):
    jax = pytest.importorskip("jax")
    case = one("index_select", which, backend=["jax"])
    got, expected = _list_names(case, tmp_path)["call"](), build_callable(case)()  # type: ignore[operator]
    assert jax.tree.map(np.shape, got) == jax.tree.map(np.shape, expected)


@pytest.mark.parametrize("which", ["forward", "backward"])
def test_model_call_program_runs_without_the_model(which, tmp_path):
    for case in model.cases("mobilenet_v3_large", image_size=32, passes=[which], seed=SEED)[:12]:
        try:
            expected = model.prepare_case(case).call()
        except TesseraError:
            continue
        again = _list_names(case, tmp_path)
        if which == "forward":
            again["before"]()  # type: ignore[operator]
            got = again["call"]()  # type: ignore[operator]
            fresh = model.prepare_case(case)
            for a, b in zip(flatten_leaves(got), flatten_leaves(fresh.call()), strict=True):
                assert np.array_equal(to_array(a), to_array(b)) or "empty" in case.name
        else:
            got = again["call"]()  # type: ignore[operator]
            assert [g.shape for g in got if g is not None] == [g.shape for g in expected if g is not None]


@pytest.mark.parametrize("which", ["forward", "backward", "both"])
@pytest.mark.timeout(60)
def test_program_runs_alone_and_prints_its_time(tmp_path, which):
    (line,) = _run(one("matmul", which), tmp_path)
    assert 0 < float(line.split()[0]) < 1
    assert line.endswith("call")


@pytest.mark.timeout(60)
def test_fused_program_times_the_separate_steps_too(tmp_path):
    lines = _run(one("conv2d_relu", fusion=["library"]), tmp_path)
    assert [line.rpartition(" ")[2] for line in lines] == ["fused", "kept", "unfused"]


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("which", ["forward", "backward", "both"])
def test_compiled_program_runs_alone(tmp_path, which):
    assert len(_run(one("gelu", which, backend=["compile"]), tmp_path)) == 1
    if which == "forward":
        assert len(_run(one("multiply_add", fusion=["compile"]), tmp_path)) == 3


@pytest.mark.timeout(100)
@pytest.mark.parametrize("which", ["forward", "backward", "both"])
def test_mxnet_program_runs_alone_if_mxnet_is_set_up(tmp_path, which):
    try:
        python = find_own_python("mxnet")
    except TesseraError as error:
        pytest.skip(str(error))
    for name in ("matmul", "batch_norm", "argsort"):
        if which == "forward" or name != "argsort":
            assert len(_run(one(name, which, backend=["mxnet"]), tmp_path, python)) == 1


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_unsupported_backends_are_errors(backend):
    with pytest.raises(TesseraError, match="tessera repro does not support this case: Tessera builds the graph"):
        _write_program(one("add", backend=[backend]))


def test_samples_of_torchs_tests_and_whole_models_are_refused():
    (sample,) = opinfo.cases(["add"], size=["small"], passes=["forward"])
    with pytest.raises(TesseraError, match="its sample comes from torch's own tests: got 'ops/add"):
        _write_program(sample)
    (whole,) = model.make_whole_model_cases(model.cases("resnet18", image_size=32))
    with pytest.raises(TesseraError, match="the case is a whole model"):
        _write_program(whole)
