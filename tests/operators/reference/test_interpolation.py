"""Tests of the reference interpolation and grid sampling of images, compared with torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera.operators.reference as ref

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(2, 9)
MODES = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3, "nearest": 2, "nearest-exact": 2, "area": 2}
WITH_CORNERS = ("linear", "bilinear", "bicubic", "trilinear")


@pytest.mark.parametrize("mode", MODES)
@given(data=st.data(), seed=seeds)
@settings(max_examples=25, deadline=None)
def test_interpolate(mode, data, seed):
    before, after = ([data.draw(sizes) for _ in range(MODES[mode])] for _ in range(2))
    options = {"align_corners": data.draw(st.booleans())} if mode in WITH_CORNERS else {}
    image = np.random.default_rng(seed).standard_normal((2, 3, *before))
    want = F.interpolate(torch.from_numpy(image), after, mode=mode, **options)
    np.testing.assert_allclose(ref.interpolate(image, after, mode, **options), want, atol=1e-12)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@given(sizes, sizes, sizes, sizes, seeds)
@settings(max_examples=25, deadline=None)
def test_interpolate_with_antialias(mode, h, w, height, width, seed):
    image = np.random.default_rng(seed).standard_normal((1, 2, h, w))
    want = F.interpolate(torch.from_numpy(image), (height, width), mode=mode, antialias=True, align_corners=False)
    np.testing.assert_allclose(ref.interpolate(image, (height, width), mode, antialias=True), want, atol=1e-12)


@pytest.mark.parametrize("space", [(5, 7), (4, 5, 6)])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("padding_mode", ["zeros", "border"])
@given(seed=seeds)
@settings(max_examples=15, deadline=None)
def test_grid_sample(space, mode, padding_mode, seed):
    rng = np.random.default_rng(seed)
    image = rng.standard_normal((2, 3, *space))
    grid = rng.uniform(-1.3, 1.3, (2, *(n + 1 for n in space), len(space)))
    want = F.grid_sample(torch.from_numpy(image), torch.from_numpy(grid), mode, padding_mode, align_corners=False)
    np.testing.assert_allclose(ref.grid_sample(image, grid, mode, padding_mode), want, atol=1e-12)


@given(sizes, sizes, seeds)
@settings(max_examples=15, deadline=None)
def test_affine_grid(height, width, seed):
    theta = np.random.default_rng(seed).standard_normal((3, 2, 3))
    want = F.affine_grid(torch.from_numpy(theta), [3, 1, height, width], align_corners=False)
    np.testing.assert_allclose(ref.affine_grid(theta, (3, 1, height, width)), want, atol=1e-12)
