"""Tests of the reference quantisation, compared with torch."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera.operators.reference as ref


@given(st.integers(0, 2**32 - 1), st.integers(-8, 2), st.integers(-100, 100))
@settings(max_examples=30, deadline=None)
def test_quantised(seed, exponent, zero_point):
    data = np.random.default_rng(seed).standard_normal((5, 6)).astype(np.float32)
    made = torch.quantize_per_tensor(torch.from_numpy(data), 2.0**exponent, zero_point, torch.qint8)
    assert np.array_equal(ref.quantise(data, 2.0**exponent, zero_point), made.dequantize().numpy())


def test_quantisation_rounds_ties_to_even():
    assert ref.quantise(np.array([0.5, 1.5, -0.5]), 1.0, 0).tolist() == [0.0, 2.0, 0.0]


def test_quantisation_clips_to_eight_bits():
    assert ref.quantise(np.array([500.0, -500.0]), 1.0, 0).tolist() == [127.0, -128.0]
