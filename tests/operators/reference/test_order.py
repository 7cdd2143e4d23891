"""Tests of the reference sorting and selection operators, compared with torch."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera.operators.reference as ref

seeds = st.integers(0, 2**32 - 1)
dims = st.sampled_from([0, 1, 2, -1, -2])


def values(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return an array of distinct values in random order."""
    return np.random.default_rng(seed).permutation(int(np.prod(shape))).reshape(shape) - 3.5


def same(got: tuple[np.ndarray, ...], want: tuple[torch.Tensor, ...]) -> bool:
    return all(np.array_equal(one, np.asarray(other), equal_nan=True) for one, other in zip(got, want, strict=True))


@given(seeds, dims, st.booleans())
@settings(max_examples=30, deadline=None)
def test_sort(seed, dim, descending):
    data = values(seed, (3, 4, 5))
    assert same(ref.sort(data, dim, descending), torch.sort(torch.from_numpy(data), dim, descending))


@given(seeds, dims, st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_topk_and_kthvalue(seed, dim, k):
    data = values(seed, (3, 4, 5))
    tensor = torch.from_numpy(data)
    assert same(ref.topk(data, k, dim), torch.topk(tensor, k, dim))
    assert same(ref.kthvalue(data, k, dim), torch.kthvalue(tensor, k, dim))


@given(seeds, dims)
@settings(max_examples=30, deadline=None)
def test_median_leaves_nan_out(seed, dim):
    data = values(seed, (3, 4, 5))
    assert same(ref.median(data, dim), torch.median(torch.from_numpy(data), dim))
    holed = np.where(np.random.default_rng(seed + 1).random(data.shape) < 0.3, np.nan, data)
    holed[0], holed[:, 0], holed[:, :, 0] = data[0], data[:, 0], data[:, :, 0]  # no row of NaN only
    assert same(ref.median(holed, dim), torch.nanmedian(torch.from_numpy(holed), dim))


@given(seeds, dims)
@settings(max_examples=30, deadline=None)
def test_mode(seed, dim):
    data = np.random.default_rng(seed).integers(0, 3, (4, 5, 6))
    got, place = ref.mode(data, dim)
    assert np.array_equal(got, torch.mode(torch.from_numpy(data), dim).values.numpy())
    assert np.array_equal(np.take_along_axis(data, np.expand_dims(place, dim), dim).squeeze(dim), got)


@given(seeds, dims)
@settings(max_examples=30, deadline=None)
def test_cumulative_extremes_with_equal_values(seed, dim):
    data = np.random.default_rng(seed).integers(0, 4, (4, 5, 6)).astype(float)
    assert same(ref.cummax(data, dim), torch.cummax(torch.from_numpy(data), dim))
    assert same(ref.cummin(data, dim), torch.cummin(torch.from_numpy(data), dim))


@given(seeds)
@settings(max_examples=30, deadline=None)
def test_searchsorted_rows(seed):
    rng = np.random.default_rng(seed)
    rows, wanted = np.sort(rng.integers(0, 9, (3, 7))), rng.integers(-1, 10, (3, 5))
    expected = torch.searchsorted(torch.from_numpy(rows), torch.from_numpy(wanted))
    assert np.array_equal(ref.searchsorted_rows(rows, wanted), expected.numpy())
