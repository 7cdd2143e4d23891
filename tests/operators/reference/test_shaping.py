"""Tests of the reference operators that rearrange elements, compared with torch."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera.operators.reference as ref

seeds = st.integers(0, 2**32 - 1)
small = st.integers(1, 3)


@given(seeds, st.integers(3, 8), st.integers(3, 8), small, st.integers(0, 2), small)
@settings(max_examples=30, deadline=None)
def test_unfold_and_fold(seed, h, w, kernel, padding, stride):
    rng = np.random.default_rng(seed)
    image = rng.standard_normal((2, 3, h, w))
    window = {"kernel_size": kernel, "padding": padding, "stride": stride}
    patches = F.unfold(torch.from_numpy(image), **window)
    np.testing.assert_allclose(ref.unfold(image, **window), patches, rtol=1e-12)
    data = rng.standard_normal(patches.shape)
    want = F.fold(torch.from_numpy(data), (h, w), **window)
    np.testing.assert_allclose(ref.fold(data, (h, w), **window), want, rtol=1e-12, atol=1e-12)


@given(seeds, small, small, small, small)
@settings(max_examples=30, deadline=None)
def test_shuffles(seed, channels, h, w, factor):
    data = np.random.default_rng(seed).standard_normal((2, channels * factor**2, h * factor, w * factor))
    tensor = torch.from_numpy(data)
    assert np.array_equal(ref.pixel_shuffle(data, factor), F.pixel_shuffle(tensor, factor))
    assert np.array_equal(ref.pixel_unshuffle(data, factor), F.pixel_unshuffle(tensor, factor))
    assert np.array_equal(ref.channel_shuffle(data, factor), F.channel_shuffle(tensor, factor))


@given(seeds, st.integers(1, 6), st.integers(1, 6))
@settings(max_examples=30, deadline=None)
def test_products_triangles_diagonals_and_pairs(seed, n, m):
    rng = np.random.default_rng(seed)
    first, second, matrix = rng.standard_normal(n), rng.standard_normal(m), rng.standard_normal((n, m))
    left, right, tensor = (torch.from_numpy(array) for array in (first, second, matrix))
    assert np.array_equal(ref.cartesian_prod(first, second), torch.cartesian_prod(left, right))
    assert np.array_equal(ref.combinations(first).reshape(-1, 2), torch.combinations(left).reshape(-1, 2))
    assert np.array_equal(ref.triangle(matrix), torch.tril(tensor))
    assert np.array_equal(ref.triangle(matrix, upper=True), torch.triu(tensor))
    assert np.array_equal(ref.diag_embed(matrix), torch.diag_embed(tensor))
    pairs = rng.standard_normal((n, m, 2))
    numbers = torch.view_as_complex(torch.from_numpy(pairs))
    assert np.array_equal(ref.view_as_complex(pairs), numbers)
    assert np.array_equal(ref.view_as_real(numbers.numpy()), torch.view_as_real(numbers))
