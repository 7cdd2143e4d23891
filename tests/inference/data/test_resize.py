"""Resizing against torch's own, and what is cut off."""

from __future__ import annotations

import tracemalloc

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.inference.data.resize import fitted, interpolation
from tests.inference.data.files import random_image

sizes = st.integers(2, 70)  # torch gives rows of one pixel to no purpose: each the first one


@settings(deadline=None)
@given(before=st.tuples(sizes, sizes), after=st.tuples(sizes, sizes))
def test_interpolation_is_torchs_with_antialiasing(before, after):
    image = torch.rand(1, 2, *before)
    expected = torch.nn.functional.interpolate(image, after, mode="bilinear", antialias=True)[0].numpy()
    rows, columns = (interpolation(old, new) for old, new in zip(before, after, strict=True))
    assert np.allclose(rows @ image[0].numpy() @ columns.T, expected, atol=1e-4)


@settings(deadline=None)
@given(before=st.tuples(sizes, sizes), after=st.tuples(sizes, sizes))
def test_an_image_is_scaled_to_cover_and_its_middle_is_kept(before, after):
    image = random_image(*before)
    found = fitted(image, *after)
    assert found.shape == (*after, 3)
    assert found.dtype == np.uint8
    turned = fitted(image[:, :, ::-1], *after)[:, :, ::-1].astype(
        int
    )  # sums in another order may round to another side
    assert np.abs(turned - found).max() <= 1


def test_what_has_the_size_of_the_crop_already_is_cut_at_its_edges():
    image = random_image(256, 256)
    assert np.array_equal(fitted(image, 224, 224), image[16:240, 16:240])


def test_a_long_strip_takes_no_more_memory_than_its_middle():
    tracemalloc.start()
    try:
        found = fitted(random_image(8, 20_000), 224, 224)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.shape == (224, 224, 3)
    assert peak < 200e6


@settings(deadline=None)
@given(before=sizes, after=sizes, data=st.data())
def test_a_part_of_an_interpolation_is_that_part_of_it(before, after, data):
    first = data.draw(st.integers(0, after - 1))
    count = data.draw(st.integers(1, after - first))
    assert np.array_equal(
        interpolation(before, after, first, count), interpolation(before, after)[first : first + count]
    )
