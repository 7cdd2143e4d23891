"""Tests of the common code of inference backends: storage of 16-bit and complex arrays, and refused cases."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tessera.errors import Refused
from tessera.operators.backends.inference_only import pairs_to_complex, refuse_unsupported, store_array, widen_bfloat16
from tessera.operators.cases import cases
from tessera.operators.inputs import round_to_dtype
from tessera.operators.preparation import build_request

SHAPES = arrays.array_shapes(min_dims=0, max_dims=3)


@given(arrays.arrays(np.float32, SHAPES, elements=st.floats(width=32)))
def test_stored_bfloat16_equals_the_drawn_values(array):
    drawn = round_to_dtype(array, "bfloat16")
    widened = widen_bfloat16(store_array(drawn, "float", "bfloat16"))
    assert np.array_equal(widened, drawn, equal_nan=True)
    assert widened.shape == array.shape


@given(arrays.arrays(np.complex64, SHAPES, elements=st.complex_numbers(width=64, allow_nan=False)))
def test_complex_numbers_survive_as_pairs(array):
    held = store_array(array, "complex", "float32")
    assert held.shape == (*array.shape, 2)
    assert held.dtype == np.float32
    assert np.array_equal(pairs_to_complex(held), array)


def test_other_kinds_keep_their_memory():
    index = np.arange(4)
    assert store_array(index, "int64", "float32") is index


@pytest.mark.parametrize(
    ("axes", "words"),
    [
        ({"passes": ["backward"]}, "Tool has no backward pass: got 'backward'; allowed: forward"),
        ({"passes": ["forward"], "skew": ["strided"]}, "Tool would copy non-contiguous inputs"),
    ],
)
def test_unsupported_requests_are_refused(axes, words):
    (case,) = cases(["add"], size=["small"], **axes)
    with pytest.raises(Refused, match=words):
        refuse_unsupported(build_request(case), "Tool")
