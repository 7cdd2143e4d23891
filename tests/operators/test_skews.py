"""Inputs unlike the average: what they are, and that operators still give the reference's numbers on them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tessera.errors import Refused
from tessera.measure.samples import Sampling
from tessera.operators import backends
from tessera.operators.backends.torch_backend import to_tensors
from tessera.operators.bench import run_case
from tessera.operators.cases import cases
from tessera.operators.catalogue import find
from tessera.operators.check import check_outputs
from tessera.operators.draws import integers
from tessera.operators.inputs import make_arrays, narrowed
from tessera.operators.operator import Input
from tessera.operators.preparation import callable_of, prepare, request_of
from tessera.operators.ready import UNDIFFERENCED, make_ready
from tessera.operators.skews import ALL_SKEWS
from tests.operators.test_operators import WORKER

SEED = random.randrange(2**31)


@pytest.mark.parametrize("skew", ALL_SKEWS)
@pytest.mark.parametrize("name", ["add", "exp", "sort", "sum"])
def test_operators_give_the_references_numbers_on_every_skew(name, skew):
    (case,) = cases([name], size=["small"], passes=["forward"], skew=[skew], seed=SEED)
    if skew == "broadcast" and name != "add":
        with pytest.raises(Refused, match="changes nothing"):
            prepare(case)
    else:
        prepare(case)


def test_whole_numbers_are_sorted_too_and_indices_are_not():
    data, index = (Input(shape=(50,), kind="int64", draw=integers(1000)) for _ in range(2))
    found = make_arrays({"data": data, "index": index}, dtype="float32", seed=SEED, skew="sorted")
    assert (np.diff(found["data"]) >= 0).all()
    assert (np.diff(found["index"]) < 0).any()
    with pytest.raises(Refused, match="changes nothing"):
        make_arrays({"index": index}, dtype="float32", seed=SEED, skew="sorted")


def _skewed(skew, shape=(20, 30)):
    return make_arrays({"x": Input(shape=shape)}, dtype="float32", seed=SEED, skew=skew)["x"]


def test_what_the_skews_are():
    plain = _skewed("")
    assert not _skewed("strided").flags.c_contiguous
    assert np.array_equal(_skewed("strided"), plain)
    assert not _skewed("strided", (40,)).flags.c_contiguous
    small = np.abs(_skewed("denormal"))
    assert 0 < small.max() < np.finfo(np.float32).tiny
    assert np.isnan(_skewed("nan")).sum() == 6
    rows = np.flatnonzero(_skewed("one_hot_row").any(axis=1))
    assert rows.tolist() == [10]
    assert np.array_equal(_skewed("sorted"), np.sort(plain, axis=-1))
    assert np.array_equal(_skewed("reversed"), np.sort(plain, axis=-1)[:, ::-1])
    assert np.ptp(_skewed("constant")) == 0


def test_denormals_are_those_of_the_dtype():
    for dtype, tiny in (("float16", 2.0**-14), ("bfloat16", 2.0**-126), ("float64", 2.0**-1022)):
        array = make_arrays({"x": Input(shape=(20, 30))}, dtype=dtype, seed=SEED, skew="denormal")["x"]
        assert 0 < np.abs(array).max() < tiny
        assert np.count_nonzero(array) > 500
        assert np.array_equal(narrowed(array, dtype), array)
        for name in ("add", "multiply"):
            (case,) = cases([name], size=["small"], passes=["forward"], dtype=[dtype], skew=["denormal"], seed=SEED)
            prepare(case)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_zeros_are_not_taken_for_denormals(dtype):
    (operator,) = find(["add"])
    want = make_arrays({"x": Input(shape=(20, 30))}, dtype=dtype, seed=SEED, skew="denormal")["x"]
    check_outputs(operator, [want], [want.astype(np.float64)], dtype=dtype, names={})
    with pytest.raises(Refused, match="differs from the reference"):
        check_outputs(operator, [np.zeros_like(want)], [want.astype(np.float64)], dtype=dtype, names={})


@pytest.mark.parametrize(("skew", "shapes"), [("off_by_one", [(65, 65)] * 2), ("broadcast", [(64, 64), (1, 64)])])
def test_skews_of_shape(skew, shapes):
    (case,) = cases(["add"], size=["small"], passes=["forward"], skew=[skew])
    assert [one.shape for one in request_of(case).inputs.values()] == shapes


def test_shapes_that_depend_on_one_another_stay_as_they_are():
    (case,) = cases(["conv2d"], size=["small"], passes=["forward"], skew=["off_by_one"])
    with pytest.raises(Refused, match="depend on one another"):
        prepare(case)


def test_strides_reach_the_operator():
    (case,) = cases(["add"], size=["small"], passes=["forward"], skew=["strided"])
    assert callable_of(case)().stride() == (1, 64)


def test_a_cold_cache_is_slower_than_a_hot_one():
    def least(cache):
        (case,) = cases(["sum"], size=["medium"], passes=["forward"], cache=[cache])
        return min(run_case(WORKER, case, Sampling(warmup=1, iterations=15)).launches[0].values)

    assert any(least("cold") > least("hot") for _ in range(5))  # on a busy machine it shows now and then only


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_inputs_are_rounded_as_torch_rounds(dtype):
    import torch

    values = np.random.default_rng(SEED).standard_normal(10_000).astype(np.float32)
    expected = torch.from_numpy(values).to(getattr(torch, dtype)).float().numpy()
    assert np.array_equal(narrowed(values, dtype), expected)


@pytest.mark.parametrize("skew", ["nan", "denormal", "one_hot_row", "constant", "sorted", "strided"])
@pytest.mark.parametrize("name", ["add", "relu", "abs", "amax_rows", "sort"])
def test_gradients_on_skewed_values_are_measured_after_those_of_others_were_found_right(name, skew):
    (case,) = cases([name], size=["small"], passes=["backward"], skew=[skew], seed=SEED)
    ready = make_ready(case)
    assert ready.call() is not None
    assert (UNDIFFERENCED in ready.notes) == (skew not in ("sorted", "strided"))


def test_a_wrong_gradient_is_found_on_skewed_values_too(monkeypatch):
    wrong = "torch.relu(data) + (data - data.detach())"
    monkeypatch.setattr(backends, "expression", lambda backend, name: wrong)
    (case,) = cases(["relu"], size=["small"], passes=["backward"], skew=["nan"], seed=SEED)
    with pytest.raises(Refused, match="the gradient of relu differs"):
        prepare(case)


@pytest.mark.parametrize("name", ["inplace_add", "sgd"])
def test_values_that_an_operator_writes_over_are_refused_and_a_layout_is_not(name):
    denormal, strided = cases([name], size=["small"], passes=["forward"], skew=["denormal", "strided"])
    with pytest.raises(Refused, match="writes over its inputs"):
        prepare(denormal)
    prepare(strided)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_gaps_reach_the_operator_in_every_dtype(dtype):
    (case,) = cases(["dot"], size=["small"], passes=["forward"], dtype=[dtype], skew=["strided"])
    assert [tensor.stride() for tensor in to_tensors(request_of(case)).values()] == [(2,), (2,)]
