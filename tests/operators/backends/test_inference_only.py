"""What inference runtimes share: how 16-bit and complex arrays are stored, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tessera.errors import Refused
from tessera.operators.backends.inference_only import as_complex, refuse_what_needs_more, stored, widened_bits
from tessera.operators.cases import cases
from tessera.operators.inputs import narrowed
from tessera.operators.preparation import request_of

SHAPES = arrays.array_shapes(min_dims=0, max_dims=3)


@given(arrays.arrays(np.float32, SHAPES, elements=st.floats(width=32)))
def test_stored_bfloat16_is_what_was_drawn(array):
    drawn = narrowed(array, "bfloat16")
    found = widened_bits(stored(drawn, "float", "bfloat16"))
    assert np.array_equal(found, drawn, equal_nan=True)
    assert found.shape == array.shape


@given(arrays.arrays(np.complex64, SHAPES, elements=st.complex_numbers(width=64, allow_nan=False)))
def test_complex_numbers_survive_as_pairs(array):
    held = stored(array, "complex", "float32")
    assert held.shape == (*array.shape, 2)
    assert held.dtype == np.float32
    assert np.array_equal(as_complex(held), array)


def test_other_kinds_keep_their_memory():
    index = np.arange(4)
    assert stored(index, "int64", "float32") is index


@pytest.mark.parametrize(
    ("axes", "words"),
    [
        ({"passes": ["backward"]}, "Tool does not differentiate: got 'backward'; allowed: forward"),
        ({"passes": ["forward"], "skew": ["strided"]}, "Tool copies strided arrays"),
    ],
)
def test_what_is_refused(axes, words):
    (case,) = cases(["add"], size=["small"], **axes)
    with pytest.raises(Refused, match=words):
        refuse_what_needs_more(request_of(case), "Tool")
