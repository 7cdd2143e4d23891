"""Tests of the reference normalisations, compared with torch in double precision."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.operators import reference as ref

seeds = st.integers(0, 2**31)
eps = st.sampled_from([1e-5, 1e-2])


def _channels(seed, dims, channels):
    """Return random data with `channels` channels, and a mean, variance, weight and bias of each channel."""
    rng = np.random.default_rng(seed)
    data = rng.standard_normal((3, channels, *rng.integers(2, 6, dims)))
    return data, *(rng.uniform(0.5, 1.5, channels) for _ in range(4))


@given(seeds, st.integers(0, 3), st.booleans(), eps)
@settings(max_examples=40, deadline=None)
def test_batch_normalisation_matches_torch(seed, dims, training, tiny):
    arrays = _channels(seed, dims, 4)
    expected = F.batch_norm(*(torch.from_numpy(array.copy()) for array in arrays), training=training, eps=tiny)
    np.testing.assert_allclose(ref.batch_norm(*arrays, training=training, eps=tiny), expected, atol=1e-10)


@given(seeds, st.integers(1, 3), st.sampled_from([1, 2, 3, 6]), eps)
@settings(max_examples=40, deadline=None)
def test_normalisation_of_groups_and_instances_matches_torch(seed, dims, groups, tiny):
    data, _, _, weight, bias = _channels(seed, dims, 6)
    tensors = [torch.from_numpy(array) for array in (data, weight, bias)]
    expected = F.group_norm(tensors[0], groups, *tensors[1:], eps=tiny)
    np.testing.assert_allclose(ref.group_norm(data, groups, weight, bias, eps=tiny), expected, atol=1e-10)
    expected = F.instance_norm(tensors[0], weight=tensors[1], bias=tensors[2], eps=tiny)
    np.testing.assert_allclose(ref.group_norm(data, 6, weight, bias, eps=tiny), expected, atol=1e-10)


@given(seeds, st.integers(1, 3), eps)
@settings(max_examples=40, deadline=None)
def test_normalisation_of_layers_and_rows_matches_torch(seed, dims, tiny):
    rng = np.random.default_rng(seed)
    data = rng.standard_normal((2, *rng.integers(2, 6, 3)))
    weight, bias = rng.standard_normal((2, *data.shape[-dims:]))
    tensors = [torch.from_numpy(array) for array in (data, weight, bias)]
    expected = F.layer_norm(tensors[0], data.shape[-dims:], *tensors[1:], tiny)
    np.testing.assert_allclose(ref.layer_norm(data, weight, bias, dims=dims, eps=tiny), expected, atol=1e-10)
    _, mean, scale = torch.native_layer_norm(tensors[0], data.shape[-dims:], None, None, tiny)
    actual = ref.compute_mean_and_rstd(data, tuple(range(-dims, 0)), tiny)
    np.testing.assert_allclose(actual[0], mean, atol=1e-10)
    np.testing.assert_allclose(actual[1], scale, atol=1e-10)
    row = weight.reshape(-1)[: data.shape[-1]]
    expected = F.rms_norm(tensors[0], data.shape[-1:], torch.from_numpy(row), tiny)
    np.testing.assert_allclose(ref.rms_norm(data, row, eps=tiny), expected, atol=1e-10)


@given(seeds, st.integers(1, 7), st.floats(0.01, 1.0), st.floats(0.5, 1.0), st.floats(1.0, 2.0))
@settings(max_examples=40, deadline=None)
def test_local_response_normalisation_matches_torch(seed, size, alpha, beta, k):
    data = _channels(seed, 2, 6)[0]
    expected = F.local_response_norm(torch.from_numpy(data), size, alpha, beta, k)
    np.testing.assert_allclose(ref.local_response_norm(data, size, alpha=alpha, beta=beta, k=k), expected, atol=1e-10)


@given(seeds, st.integers(1, 3))
@settings(max_examples=20, deadline=None)
def test_normalisation_of_weights_matches_torch(seed, dims):
    rng = np.random.default_rng(seed)
    direction = rng.standard_normal((4, *rng.integers(2, 6, dims)))
    magnitude = rng.uniform(0.5, 1.5, (4, *(1,) * dims))
    expected = torch._weight_norm(torch.from_numpy(direction), torch.from_numpy(magnitude), 0)
    np.testing.assert_allclose(ref.weight_norm(direction, magnitude), expected, atol=1e-10)
