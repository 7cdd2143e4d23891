"""Tests of the reference special functions, compared with torch in double precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import tessera.operators.reference as ref


@pytest.mark.parametrize("kind", ["v", "w"])
@given(data=arrays(np.float64, (20,), elements=st.floats(-1, 1)), n=st.integers(0, 12))
@settings(max_examples=50, deadline=None)
def test_chebyshev_polynomials(kind, data, n):
    want = getattr(torch.special, f"chebyshev_polynomial_{kind}")(torch.from_numpy(data), n)
    np.testing.assert_allclose(getattr(ref, f"chebyshev_{kind}")(data, n), want.numpy(), rtol=1e-9, atol=1e-9)
