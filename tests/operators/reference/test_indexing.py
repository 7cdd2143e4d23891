"""Tests of the reference operators that write to indexed elements, compared with torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera.operators.reference as ref

seeds = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize("dim", [0, 1, 2])
@given(seed=seeds)
@settings(max_examples=20, deadline=None)
def test_scatters(dim, seed):
    rng = np.random.default_rng(seed)
    data, source = rng.standard_normal((2, 4, 4, 4))
    index = rng.integers(0, 4, data.shape)
    once = np.argsort(rng.random(data.shape), axis=dim)
    tensors = [torch.from_numpy(np.ascontiguousarray(array)) for array in (data, index, source, once)]
    into, where, what, places = tensors

    def agree(got, want):
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-12)

    agree(ref.write_at(data, ref.index_along(once, dim), source), torch.scatter(into, dim, places, what))
    agree(ref.add_at(data, ref.index_along(index, dim), source), torch.scatter_add(into, dim, where, what))
    agree(
        ref.maximum_at(data, ref.index_along(index, dim), source), torch.scatter_reduce(into, dim, where, what, "amax")
    )


@given(seeds)
@settings(max_examples=20, deadline=None)
def test_rows(seed):
    rng = np.random.default_rng(seed)
    data, source = rng.standard_normal((6, 3)), rng.standard_normal((4, 3))
    repeated, once = rng.integers(0, 6, 4), rng.permutation(6)[:4]
    into, what, where, places = (torch.from_numpy(array) for array in (data, source, repeated, once))
    np.testing.assert_allclose(ref.write_at(data, once, source), torch.index_copy(into, 0, places, what), rtol=1e-12)
    np.testing.assert_allclose(ref.add_at(data, repeated, source), torch.index_add(into, 0, where, what), rtol=1e-12)
    raised = torch.index_reduce(into, 0, where, what, "amax")
    np.testing.assert_allclose(ref.maximum_at(data, repeated, source), raised, rtol=1e-12)


@given(seeds)
@settings(max_examples=20, deadline=None)
def test_nonzero_static(seed):
    data = np.random.default_rng(seed).integers(0, 2, (3, 4, 2))
    want = torch.nonzero_static(torch.from_numpy(data), size=data.size, fill_value=-1)
    assert np.array_equal(ref.nonzero_static(data), want)


def test_the_data_is_not_changed():
    data = np.zeros(3)
    ref.write_at(data, 0, 1.0)
    ref.add_at(data, [1, 1], np.ones(2))
    assert not data.any()
