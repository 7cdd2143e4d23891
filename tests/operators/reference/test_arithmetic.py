"""Tests of the reference arithmetic operators, compared with torch in double precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

import tessera.operators.reference as ref

TORCH = {
    "addcmul": lambda data, first, second, number: torch.addcmul(data, first, second, value=number),
    "addcdiv": lambda data, first, second, number: torch.addcdiv(data, first, second, value=number),
    "lerp": lambda start, end, weight, number: torch.lerp(start, end, weight * number),
}
REFERENCE = {**{name: getattr(ref, name) for name in TORCH}, "lerp": lambda a, b, w, number: ref.lerp(a, b, w * number)}


@pytest.mark.parametrize("name", TORCH)
@given(shape=array_shapes(max_dims=3, max_side=6), number=st.floats(-3, 3), draws=st.data())
@settings(max_examples=40, deadline=None)
def test_functions_of_three_inputs_match_torch(name, shape, number, draws):
    one, other, third = (draws.draw(arrays(np.float64, shape, elements=st.floats(0.1, 9))) for _ in range(3))
    want = TORCH[name](*(torch.from_numpy(array) for array in (one, other, third)), number)
    np.testing.assert_allclose(REFERENCE[name](one, other, third, number), want.numpy(), rtol=1e-12, atol=1e-12)
