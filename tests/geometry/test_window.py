"""Tests of windows: output sizes, input boxes and refusals equal torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tessera.geometry import Box, Window
from tests.geometry.reference import apply_window, pad_image
from tests.geometry.strategies import images, windows

CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
MAX_POOL = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


def run_torch(window: Window, image: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return torch's result for a window: convolution of the padded image, max pool, or transposed convolution."""
    dims = len(window.kernel)
    pads = [p for pair in reversed(window.padding) for p in pair]
    before = [pair[0] for pair in window.padding]
    if window.transposed:
        return TRANSPOSED[dims](image, weight, None, window.stride, before, window.output_padding, 1, window.dilation)
    if window.ceil_mode:
        return MAX_POOL[dims](image, window.kernel, window.stride, before, window.dilation, ceil_mode=True)
    return CONV[dims](F.pad(image, pads), weight, None, window.stride, 0, window.dilation)


def has_equal_padding(window: Window) -> bool:
    return all(a == b for a, b in window.padding)


@settings(max_examples=250, deadline=None)
@given(st.data())
def test_output_sizes_equal_torch(data: st.DataObject) -> None:
    dims = data.draw(st.integers(1, 3))
    window = data.draw(windows(dims))
    size = data.draw(st.tuples(*[st.integers(1, 12)] * dims))
    assume(has_equal_padding(window) or not (window.transposed or window.ceil_mode))
    if window.ceil_mode:  # torch limits the padding of pools to half a kernel
        assume(all(2 * pad <= k for (pad, _), k in zip(window.padding, window.kernel, strict=True)))
    try:
        expected = tuple(run_torch(window, torch.zeros(1, 1, *size), torch.zeros(1, 1, *window.kernel)).shape[2:])
    except RuntimeError:
        with pytest.raises(ValueError, match="does not fit an image of"):
            window.compute_output_size(size)
    else:
        assert window.compute_output_size(size) == expected


@settings(max_examples=120, deadline=None)
@given(st.data(), st.integers(0, 2**32 - 1))
def test_an_output_reads_the_same_input_as_in_torch(data: st.DataObject, seed: int) -> None:
    window = data.draw(windows(data.draw(st.integers(1, 3)), ["plain", "transposed"]))
    assume(has_equal_padding(window) or not window.transposed)
    sizes = data.draw(images(window, "zeros"))
    random = np.random.default_rng(seed)
    image, weight = (random.integers(-9, 10, shape).astype(float) for shape in (sizes, window.kernel))
    whole = Box.from_sizes((sizes[0], *window.compute_output_size(sizes[1:])))
    need = window.compute_input_box(whole)
    actual = apply_window(window, weight, pad_image(image, need, "zeros"), need, whole)
    expected = run_torch(window, torch.from_numpy(image)[:, None], torch.from_numpy(weight)[None, None])
    np.testing.assert_array_equal(actual, expected[:, 0].numpy())


@settings(deadline=None)
@given(st.data())
def test_an_input_box_ends_at_the_outermost_taps(data: st.DataObject) -> None:
    window = data.draw(windows(1, ["plain"]))
    first = data.draw(st.integers(0, 9))
    last = first + data.draw(st.integers(0, 9))
    (stride,), (dilation,), (kernel,), ((before, _),) = window.stride, window.dilation, window.kernel, window.padding
    taps = [o * stride - before + k * dilation for o in range(first, last + 1) for k in range(kernel)]
    assert window.compute_input_box(Box.of((0, 2), (first, last + 1))) == Box.of((0, 2), (min(taps), max(taps) + 1))


def test_a_pool_in_ceil_mode_may_be_larger_than_its_image() -> None:
    window = Window.of(3, stride=2, ceil_mode=True)
    assert window.compute_output_size((2, 2)) == F.max_pool2d(torch.zeros(1, 1, 2, 2), 3, 2, ceil_mode=True).shape[2:]


def test_an_empty_output_needs_no_input() -> None:
    assert not Window.of(3, padding=1).compute_input_box(Box.of((0, 1), (2, 2), (0, 4)))
    every_other = Window.of(1, stride=2, output_padding=1, transposed=True)
    assert not every_other.compute_input_box(Box.of((0, 1), (1, 2), (0, 4))), "no input reaches the second row"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"kernel": ()}, "a window needs at least one dim"),
        ({"kernel": (3, 3), "stride": (1, 1, 1)}, "a window of 2 dims needs as many strides, dilations and paddings"),
        ({"kernel": (3, 3), "padding": [1]}, "a window of 2 dims needs as many"),
        ({"kernel": 0}, "kernel, stride and dilation must be 1 or more"),
        ({"kernel": 3, "stride": 0}, "kernel, stride and dilation must be 1 or more"),
        ({"kernel": 3, "dilation": -1}, "kernel, stride and dilation must be 1 or more"),
        ({"kernel": 3, "padding": -1}, "padding must be 0 or more"),
        ({"kernel": 3, "padding": [(0, 0), (0, -2)]}, "padding must be 0 or more"),
        ({"kernel": 3, "output_padding": 1}, "output padding requires a transposed window"),
        ({"kernel": 3, "transposed": True, "output_padding": (1,)}, "one entry per dim"),
        ({"kernel": 3, "transposed": True, "output_padding": 1}, "output padding must be less than the stride"),
        ({"kernel": 3, "transposed": True, "output_padding": -1}, "padding must be 0 or more"),
        ({"kernel": 3, "transposed": True, "ceil_mode": True}, "ceil mode is not supported for transposed windows"),
    ],
)
def test_invalid_windows_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Window.of(**options)


def test_images_that_do_not_fit_are_refused() -> None:
    window = Window.of(5, padding=[(1, 0), (0, 0)], dilation=2)
    with pytest.raises(ValueError, match="spans 9 pixels does not fit an image of 7 padded by 1 and 0"):
        window.compute_output_size((7, 20))
    with pytest.raises(ValueError, match="a window of 2 dims requires an image of as many spatial dims; got 3"):
        window.compute_output_size((20, 20, 20))


def test_repr_of_a_window() -> None:
    window = Window.of((3, 5), stride=2, dilation=(1, 2), padding=[(1, 2), (0, 0)], transposed=True, output_padding=1)
    assert repr(window) == (
        "Window(kernel 3x5, stride 2x2, dilation 1x2, padding 1:2x0:0, output padding 1x1, transposed)"
    )
    assert Window.of_one_pixel(3) == Window.of(1, dims=3)
    assert Window.of(3).extent == (3, 3)
