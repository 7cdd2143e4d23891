"""Tests that compare resizing and cropping with torch."""

from __future__ import annotations

import tracemalloc

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.inference.data.images import compute_resize_weights, crop_and_resize
from tests.inference.data.files import draw_image

sizes = st.integers(2, 70)  # torch resizes rows of one pixel differently: it repeats the pixel


@settings(deadline=None)
@given(before=st.tuples(sizes, sizes), after=st.tuples(sizes, sizes))
def test_interpolation_equals_torch_with_antialiasing(before, after):
    image = torch.rand(1, 2, *before)
    expected = torch.nn.functional.interpolate(image, after, mode="bilinear", antialias=True)[0].numpy()
    rows, columns = (compute_resize_weights(old, new) for old, new in zip(before, after, strict=True))
    assert np.allclose(rows @ image[0].numpy() @ columns.T, expected, atol=1e-4)


@settings(deadline=None)
@given(before=st.tuples(sizes, sizes), after=st.tuples(sizes, sizes))
def test_an_image_is_resized_and_its_centre_cropped(before, after):
    image = draw_image(*before)
    actual = crop_and_resize(image, *after)
    assert actual.shape == (*after, 3)
    assert actual.dtype == np.uint8
    turned = crop_and_resize(image[:, :, ::-1], *after)[:, :, ::-1].astype(
        int
    )  # a different order of summation may round differently
    assert np.abs(turned - actual).max() <= 1


def test_an_image_of_the_crop_size_is_cropped_at_its_edges():
    image = draw_image(256, 256)
    assert np.array_equal(crop_and_resize(image, 224, 224), image[16:240, 16:240])


def test_a_long_image_requires_memory_only_for_its_centre():
    tracemalloc.start()
    try:
        actual = crop_and_resize(draw_image(8, 20_000), 224, 224)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert actual.shape == (224, 224, 3)
    assert peak < 200e6


@settings(deadline=None)
@given(before=sizes, after=sizes, data=st.data())
def test_selected_rows_equal_the_rows_of_the_whole_matrix(before, after, data):
    first = data.draw(st.integers(0, after - 1))
    count = data.draw(st.integers(1, after - first))
    assert np.array_equal(
        compute_resize_weights(before, after, first, count),
        compute_resize_weights(before, after)[first : first + count],
    )
