"""Tests of the reference pooling operators, compared with torch in double precision."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.operators import reference as ref

seeds = st.integers(0, 2**31)
dims = st.integers(1, 3)


def _data(seed, dims, low=7):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((2, 3, *rng.integers(low, low + 5, dims)))


@st.composite
def windows(draw):
    """Draw data, and a kernel size, stride and padding of each spatial dim."""
    data = _data(draw(seeds), draw(dims))
    many = data.ndim - 2
    kernel = tuple(draw(st.integers(1, 3)) for _ in range(many))
    stride = tuple(draw(st.integers(1, 3)) for _ in range(many))
    return data, kernel, stride, tuple(draw(st.integers(0, k // 2)) for k in kernel)


@given(windows(), st.integers(1, 2))
@settings(max_examples=60, deadline=None)
def test_max_pooling_and_its_indices_match_torch(window, dilation):
    data, kernel, stride, padding = window
    function = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[data.ndim - 3]
    given = {"stride": stride, "padding": padding, "dilation": dilation}
    values, places = function(torch.from_numpy(data), kernel, **given, return_indices=True)
    result = ref.max_pool_with_indices(data, kernel, **given)
    np.testing.assert_array_equal(result[0], values)
    np.testing.assert_array_equal(result[1], places)
    np.testing.assert_array_equal(ref.max_pool(data, kernel, **given), values)


@given(windows(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_mean_pooling_matches_torch(window, include):
    data, kernel, stride, padding = window
    function = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[data.ndim - 3]
    expected = function(torch.from_numpy(data), kernel, stride, padding, count_include_pad=include)
    np.testing.assert_allclose(ref.avg_pool(data, kernel, stride, padding, include), expected, atol=1e-12)


@given(seeds, dims, st.floats(1.0, 4.0), st.integers(1, 3), st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_norm_pooling_matches_torch(seed, many, order, kernel, stride):
    data = np.abs(_data(seed, many))  # torch does not take the absolute value before the power
    function = (F.lp_pool1d, F.lp_pool2d, F.lp_pool3d)[many - 1]
    expected = function(torch.from_numpy(data), order, kernel, stride)
    np.testing.assert_allclose(ref.lp_pool(data, order, kernel, stride), expected, atol=1e-10)


@given(seeds, st.lists(st.integers(1, 9), min_size=1, max_size=3))
@settings(max_examples=60, deadline=None)
def test_adaptive_pooling_matches_torch(seed, bins):
    data = _data(seed, len(bins))
    mean = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)[len(bins) - 1]
    largest = (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d)[len(bins) - 1]
    size = bins[0] if len(bins) == 1 else bins
    np.testing.assert_allclose(ref.adaptive_avg_pool(data, bins), mean(torch.from_numpy(data), size), atol=1e-12)
    np.testing.assert_array_equal(ref.adaptive_max_pool(data, bins), largest(torch.from_numpy(data), size))


@given(seeds, st.integers(2, 3), st.data())
@settings(max_examples=60, deadline=None)
def test_fractional_pooling_matches_torch(seed, many, draw):
    data = _data(seed, many)
    samples = np.random.default_rng(seed).uniform(size=(2, 3, many))
    kernel = draw.draw(st.integers(1, 3))
    outputs = tuple(draw.draw(st.integers(2, size - kernel)) for size in data.shape[2:])
    function = (F.fractional_max_pool2d, F.fractional_max_pool3d)[many - 2]
    expected = function(torch.from_numpy(data), kernel, outputs, _random_samples=torch.from_numpy(samples))
    np.testing.assert_array_equal(ref.fractional_max_pool(data, samples, kernel, outputs), expected)


@given(seeds, dims)
@settings(max_examples=30, deadline=None)
def test_unpooling_matches_torch(seed, many):
    data = torch.from_numpy(_data(seed, many, low=4))
    pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[many - 1]
    unpool = (F.max_unpool1d, F.max_unpool2d, F.max_unpool3d)[many - 1]
    values, places = pool(data, 2, return_indices=True)
    expected = unpool(values, places, 2, output_size=data.shape[2:])
    np.testing.assert_array_equal(ref.max_unpool(values.numpy(), places.numpy(), tuple(data.shape[2:])), expected)
