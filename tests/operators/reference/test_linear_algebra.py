"""Tests of the reference matrix factorisations, compared with torch in double precision."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.operators import reference as ref

seeds = st.integers(0, 2**31)
sides = st.integers(1, 8)


def _same(result, expected):
    for one, other in zip(result, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9)


@given(seeds, sides, st.integers(0, 4))
@settings(max_examples=40, deadline=None)
def test_householder_reflections_match_torch(seed, columns, more):
    rng = np.random.default_rng(seed)
    data = rng.standard_normal((columns + more, columns))
    packed, tau = torch.geqrf(torch.from_numpy(data))
    _same(ref.geqrf(data), (packed, tau))
    product = ref.householder_product(packed.numpy(), tau.numpy())
    _same([product], [torch.linalg.householder_product(packed, tau)])
    _same([product @ np.triu(packed.numpy()[:columns])], [data])


@given(seeds, sides)
@settings(max_examples=40, deadline=None)
def test_lu_factorisation_matches_torch(seed, side):
    rng = np.random.default_rng(seed)
    data, rhs = rng.standard_normal((2, side, side))
    factored = torch.linalg.lu_factor(torch.from_numpy(data))
    _same(ref.lu_factor(data), factored)
    packed, pivots = (part.numpy() for part in factored)
    _same(ref.lu_unpack(packed, pivots), torch.lu_unpack(*factored))
    solution = torch.linalg.lu_solve(*factored, torch.from_numpy(rhs)).numpy()
    np.testing.assert_allclose(ref.lu_solve(packed, pivots, rhs), solution, rtol=1e-6, atol=1e-9)


@given(seeds, sides)
@settings(max_examples=40, deadline=None)
def test_ldl_factorisation_matches_torch(seed, side):
    rng = np.random.default_rng(seed)
    noise, rhs = rng.standard_normal((2, side, side))
    data = noise + noise.T + 6 * side * np.eye(side)
    packed, pivots = torch.linalg.ldl_factor(torch.from_numpy(data))
    _same(ref.ldl_factor(data), (packed.tril(), pivots))
    _same([ref.ldl_solve(packed.numpy(), rhs)], [torch.linalg.ldl_solve(packed, pivots, torch.from_numpy(rhs))])
