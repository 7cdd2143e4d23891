"""Tests of the reference norms and angles, compared with torch."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera.operators.reference as ref

seeds = st.integers(0, 2**32 - 1)


@given(seeds, st.sampled_from([1.0, 2.0, 3.0]), st.sampled_from([0, 1, 2]), st.floats(0.5, 5.0))
@settings(max_examples=30, deadline=None)
def test_renorm(seed, p, dim, maxnorm):
    data = np.random.default_rng(seed).standard_normal((3, 4, 5))
    want = torch.renorm(torch.from_numpy(data), p, dim, maxnorm)
    np.testing.assert_allclose(ref.renorm(data, p, dim, maxnorm), want, rtol=1e-10)


@given(seeds, st.sampled_from([0, 1, -1]))
@settings(max_examples=30, deadline=None)
def test_normalize_and_cosine_similarity(seed, dim):
    lhs, rhs = np.random.default_rng(seed).standard_normal((2, 4, 5))
    left, right = torch.from_numpy(lhs), torch.from_numpy(rhs)
    np.testing.assert_allclose(ref.normalize(lhs, dim), F.normalize(left, dim=dim), rtol=1e-12)
    np.testing.assert_allclose(ref.cosine_similarity(lhs, rhs), F.cosine_similarity(left, right, dim=-1), rtol=1e-10)
