"""Tests of the reference activations, compared with torch in double precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

import tessera.operators.reference as ref

VALUES = st.floats(-30, 30) | st.sampled_from([-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0])  # some non-differentiable
DATA = arrays(np.float64, array_shapes(max_dims=3, max_side=8), elements=VALUES)
SLOPE = st.floats(0.01, 2.0)

WITHOUT_ARGUMENTS = {
    "selu": F.selu,
    "gelu": F.gelu,
    "gelu_tanh": lambda data: F.gelu(data, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "softsign": F.softsign,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
}
WITH_A_NUMBER = {
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "celu": F.celu,
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    # above a threshold, torch returns its input, which is exact in single precision only: raise the threshold
    "softplus": lambda data, beta: F.softplus(data, beta, threshold=1e3),
}


def _same(got: np.ndarray, want: torch.Tensor) -> None:
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", WITHOUT_ARGUMENTS)
@given(data=DATA)
@settings(max_examples=40, deadline=None)
def test_activation(name, data):
    _same(getattr(ref, name)(data), WITHOUT_ARGUMENTS[name](torch.from_numpy(data)))


@pytest.mark.parametrize("name", WITH_A_NUMBER)
@given(data=DATA, number=SLOPE | st.sampled_from([0.5, 1.0]))
@settings(max_examples=40, deadline=None)
def test_activation_with_a_number(name, data, number):
    _same(getattr(ref, name)(data, number), WITH_A_NUMBER[name](torch.from_numpy(data), number))


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_prelu_has_a_slope_for_each_channel(draws):
    data = draws.draw(arrays(np.float64, array_shapes(min_dims=2, max_dims=4, max_side=5), elements=VALUES))
    weight = draws.draw(arrays(np.float64, (data.shape[1],), elements=SLOPE))
    _same(ref.prelu(data, weight), F.prelu(torch.from_numpy(data), torch.from_numpy(weight)))


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_glu_halves_a_dim(draws):
    shape = list(draws.draw(array_shapes(max_dims=3, max_side=5)))
    dim = draws.draw(st.integers(-len(shape), len(shape) - 1))
    shape[dim] *= 2
    data = draws.draw(arrays(np.float64, tuple(shape), elements=VALUES))
    _same(ref.glu(data, dim), F.glu(torch.from_numpy(data), dim))


@given(arrays(np.float64, (5,), elements=st.floats(-2, 2)), st.floats(0.2, 3.0))
@settings(max_examples=10, deadline=None)
def test_gumbel_softmax_picks_by_probability(logits, tau):
    count = 20_000
    rows = ref.gumbel_softmax(np.tile(logits, (count, 1)), tau, -1)
    np.testing.assert_allclose(rows.sum(-1), 1.0)
    wanted = np.exp(logits) / np.exp(logits).sum()
    seen = np.bincount(rows.argmax(-1), minlength=5) / count
    assert (np.abs(seen - wanted) < 6 * np.sqrt(wanted * (1 - wanted) / count)).all()
