"""Tests of the reference attention, compared with torch in double precision."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.operators import reference as ref

seeds = st.integers(0, 2**31)


@given(seeds, st.integers(1, 6), st.integers(1, 6), st.sampled_from(["", "causal", "mask", "bias"]), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_dot_product_attention_matches_torch(seed, queries, keys, how, shared):
    rng = np.random.default_rng(seed)
    query = rng.standard_normal((2, 2 * shared, queries, 4))
    key, value = rng.standard_normal((2, 2, 2, keys, 4))
    mask = None
    if how == "mask":
        mask = rng.random((queries, keys)) < 0.5
        mask[:, 0] = True
    elif how == "bias":
        mask = rng.standard_normal((queries, keys))
    expected = F.scaled_dot_product_attention(
        *map(torch.from_numpy, (query, key, value)),
        attn_mask=None if mask is None else torch.from_numpy(mask),
        is_causal=how == "causal",
        enable_gqa=shared > 1,
    )
    np.testing.assert_allclose(ref.attention(query, key, value, mask, causal=how == "causal"), expected, atol=1e-10)


@given(seeds, st.integers(1, 3), st.integers(1, 5), st.integers(1, 5))
@settings(max_examples=30, deadline=None)
def test_attention_of_several_heads_matches_torch(seed, heads, queries, keys):
    torch.manual_seed(seed)
    features = 4 * heads
    module = torch.nn.MultiheadAttention(features, heads, batch_first=True, dtype=torch.float64).eval()
    query = torch.randn(2, queries, features, dtype=torch.float64)
    key, value = torch.randn(2, 2, keys, features, dtype=torch.float64)
    expected = module(query, key, value, need_weights=False)[0].detach()
    weights = module.in_proj_weight, module.in_proj_bias, module.out_proj.weight, module.out_proj.bias
    arrays = [tensor.detach().numpy() for tensor in (query, key, value, *weights)]
    np.testing.assert_allclose(ref.multi_head_attention(*arrays, num_heads=heads), expected, atol=1e-10)
