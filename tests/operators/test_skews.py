"""Tests of skewed inputs (sorted, denormal, strided, …): their values, and outputs equal to the reference."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tessera.errors import Refused
from tessera.launch.worker import RunContext
from tessera.measure.samples import Sampling
from tessera.operators import backends
from tessera.operators.backends.torch_backend import to_tensors
from tessera.operators.bench import build_callable, run_case
from tessera.operators.cases import cases
from tessera.operators.catalogue import find_operators
from tessera.operators.check import check_outputs
from tessera.operators.draws import integers
from tessera.operators.inputs import make_arrays, round_to_dtype
from tessera.operators.operator import Input
from tessera.operators.preparation import UNSKEWED_GRADIENTS_NOTE, build_request, prepare_operator, prepare_pass
from tessera.operators.skews import ALL_SKEWS

SEED = random.randrange(2**31)


@pytest.mark.parametrize("skew", ALL_SKEWS)
@pytest.mark.parametrize("name", ["add", "exp", "sort", "sum"])
def test_operators_match_the_reference_on_every_skew(name, skew):
    (case,) = cases([name], size=["small"], passes=["forward"], skew=[skew], seed=SEED)
    if skew == "broadcast" and name != "add":
        with pytest.raises(Refused, match="does not change any input"):
            prepare_operator(case)
    else:
        prepare_operator(case)


def test_skews_apply_to_integer_data_but_not_to_indices():
    data, index = (Input(shape=(50,), kind="int64", draw=integers(1000)) for _ in range(2))
    actual = make_arrays({"data": data, "index": index}, dtype="float32", seed=SEED, skew="sorted")
    assert (np.diff(actual["data"]) >= 0).all()
    assert (np.diff(actual["index"]) < 0).any()
    with pytest.raises(Refused, match="does not change any input"):
        make_arrays({"index": index}, dtype="float32", seed=SEED, skew="sorted")


def _make_skewed(skew, shape=(20, 30)):
    return make_arrays({"x": Input(shape=shape)}, dtype="float32", seed=SEED, skew=skew)["x"]


def test_values_of_each_skew():
    plain = _make_skewed("")
    assert not _make_skewed("strided").flags.c_contiguous
    assert np.array_equal(_make_skewed("strided"), plain)
    assert not _make_skewed("strided", (40,)).flags.c_contiguous
    small = np.abs(_make_skewed("denormal"))
    assert 0 < small.max() < np.finfo(np.float32).tiny
    assert np.isnan(_make_skewed("nan")).sum() == 6
    rows = np.flatnonzero(_make_skewed("one_hot_row").any(axis=1))
    assert rows.tolist() == [10]
    assert np.array_equal(_make_skewed("sorted"), np.sort(plain, axis=-1))
    assert np.array_equal(_make_skewed("reversed"), np.sort(plain, axis=-1)[:, ::-1])
    assert np.ptp(_make_skewed("constant")) == 0


def test_denormal_skew_is_denormal_in_the_dtype():
    for dtype, tiny in (("float16", 2.0**-14), ("bfloat16", 2.0**-126), ("float64", 2.0**-1022)):
        array = make_arrays({"x": Input(shape=(20, 30))}, dtype=dtype, seed=SEED, skew="denormal")["x"]
        assert 0 < np.abs(array).max() < tiny
        assert np.count_nonzero(array) > 500
        assert np.array_equal(round_to_dtype(array, dtype), array)
        for name in ("add", "multiply"):
            (case,) = cases([name], size=["small"], passes=["forward"], dtype=[dtype], skew=["denormal"], seed=SEED)
            prepare_operator(case)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_zeros_do_not_match_denormal_values(dtype):
    (operator,) = find_operators(["add"])
    want = make_arrays({"x": Input(shape=(20, 30))}, dtype=dtype, seed=SEED, skew="denormal")["x"]
    check_outputs(operator, [want], [want.astype(np.float64)], dtype=dtype, names={})
    with pytest.raises(Refused, match="differs from the reference"):
        check_outputs(operator, [np.zeros_like(want)], [want.astype(np.float64)], dtype=dtype, names={})


@pytest.mark.parametrize(("skew", "shapes"), [("off_by_one", [(65, 65)] * 2), ("broadcast", [(64, 64), (1, 64)])])
def test_skews_of_shape(skew, shapes):
    (case,) = cases(["add"], size=["small"], passes=["forward"], skew=[skew])
    assert [one.shape for one in build_request(case).inputs.values()] == shapes


def test_shape_skew_of_related_shapes_is_refused():
    (case,) = cases(["conv2d"], size=["small"], passes=["forward"], skew=["off_by_one"])
    with pytest.raises(Refused, match="depend on one another"):
        prepare_operator(case)


def test_strides_reach_the_operator():
    (case,) = cases(["add"], size=["small"], passes=["forward"], skew=["strided"])
    assert build_callable(case)().stride() == (1, 64)


def test_a_cold_cache_is_slower_than_a_hot_one():
    def least(cache):
        (case,) = cases(["sum"], size=["medium"], passes=["forward"], cache=[cache])
        return min(run_case(RunContext(), case, Sampling(warmup=1, iterations=15)).launches[0].values)

    assert any(least("cold") > least("hot") for _ in range(5))  # on a busy machine, noise can hide the difference


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_inputs_are_rounded_as_torch_rounds(dtype):
    import torch

    values = np.random.default_rng(SEED).standard_normal(10_000).astype(np.float32)
    expected = torch.from_numpy(values).to(getattr(torch, dtype)).float().numpy()
    assert np.array_equal(round_to_dtype(values, dtype), expected)


@pytest.mark.parametrize("skew", ["nan", "denormal", "one_hot_row", "constant", "sorted", "strided"])
@pytest.mark.parametrize("name", ["add", "relu", "abs", "amax_rows", "sort"])
def test_skewed_gradients_are_checked_without_the_skew(name, skew):
    (case,) = cases([name], size=["small"], passes=["backward"], skew=[skew], seed=SEED)
    ready = prepare_pass(case)
    assert ready.call() is not None
    assert (UNSKEWED_GRADIENTS_NOTE in ready.notes) == (skew not in ("sorted", "strided"))


def test_wrong_gradient_is_detected_for_skewed_values(monkeypatch):
    wrong = "torch.relu(data) + (data - data.detach())"
    monkeypatch.setattr(backends, "get_expression", lambda backend, name: wrong)
    (case,) = cases(["relu"], size=["small"], passes=["backward"], skew=["nan"], seed=SEED)
    with pytest.raises(Refused, match="the gradient of relu differs"):
        prepare_operator(case)


@pytest.mark.parametrize("name", ["inplace_add", "sgd"])
def test_value_skew_of_overwritten_inputs_is_refused_and_layout_skew_is_not(name):
    denormal, strided = cases([name], size=["small"], passes=["forward"], skew=["denormal", "strided"])
    with pytest.raises(Refused, match="overwrites its inputs"):
        prepare_operator(denormal)
    prepare_operator(strided)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_strided_inputs_stay_strided_in_every_dtype(dtype):
    (case,) = cases(["dot"], size=["small"], passes=["forward"], dtype=[dtype], skew=["strided"])
    assert [tensor.stride() for tensor in to_tensors(build_request(case)).values()] == [(2,), (2,)]
