"""Tests of the reference short-time Fourier transforms, compared with torch in double precision."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.operators import reference as ref

sizes = st.sampled_from([(8, 2), (8, 4), (16, 4), (16, 8), (12, 3)])


@given(st.integers(0, 2**31), sizes, st.integers(20, 60))
@settings(max_examples=30, deadline=None)
def test_stft_matches_torch(seed, size, length):
    n_fft, hop = size
    rng = np.random.default_rng(seed)
    data, window = rng.standard_normal((2, length)), rng.uniform(0.5, 1.0, n_fft)
    expected = torch.stft(torch.from_numpy(data), n_fft, hop, window=torch.from_numpy(window), return_complex=True)
    np.testing.assert_allclose(ref.stft(data, window, n_fft=n_fft, hop_length=hop), expected, atol=1e-10)


@given(st.integers(0, 2**31), sizes, st.integers(4, 20))
@settings(max_examples=30, deadline=None)
def test_istft_matches_torch(seed, size, frames):
    n_fft, hop = size
    rng = np.random.default_rng(seed)
    real, imaginary = rng.standard_normal((2, 2, n_fft // 2 + 1, frames))
    data, window = real + 1j * imaginary, rng.uniform(0.5, 1.0, n_fft)
    expected = torch.istft(torch.from_numpy(data), n_fft, hop, window=torch.from_numpy(window))
    np.testing.assert_allclose(ref.istft(data, window, n_fft=n_fft, hop_length=hop), expected, atol=1e-10)
