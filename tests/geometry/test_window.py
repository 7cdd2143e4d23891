"""Windows against torch: the same sizes of outputs, the same inputs behind them, the same refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tessera.geometry import Box, Window
from tests.geometry.drawn import images, windows
from tests.geometry.reference import padded, windowed

CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
MAX_POOL = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


def by_torch(window: Window, image: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The window's layer; torch takes unequal padding of convolutions apart, and has none of the others."""
    dims = len(window.kernel)
    pads = [p for pair in reversed(window.padding) for p in pair]
    before = [pair[0] for pair in window.padding]
    if window.transposed:
        return TRANSPOSED[dims](image, weight, None, window.stride, before, window.output_padding, 1, window.dilation)
    if window.ceil_mode:
        return MAX_POOL[dims](image, window.kernel, window.stride, before, window.dilation, ceil_mode=True)
    return CONV[dims](F.pad(image, pads), weight, None, window.stride, 0, window.dilation)


def even(window: Window) -> bool:
    return all(a == b for a, b in window.padding)


@settings(max_examples=250, deadline=None)
@given(st.data())
def test_output_sizes_are_those_of_torch(data: st.DataObject) -> None:
    dims = data.draw(st.integers(1, 3))
    window = data.draw(windows(dims))
    size = data.draw(st.tuples(*[st.integers(1, 12)] * dims))
    assume(even(window) or not (window.transposed or window.ceil_mode))
    if window.ceil_mode:  # pools have no padding of more than half a kernel
        assume(all(2 * pad <= k for (pad, _), k in zip(window.padding, window.kernel, strict=True)))
    try:
        expected = tuple(by_torch(window, torch.zeros(1, 1, *size), torch.zeros(1, 1, *window.kernel)).shape[2:])
    except RuntimeError:
        with pytest.raises(ValueError, match="does not fit an image of"):
            window.output_size(size)
    else:
        assert window.output_size(size) == expected


@settings(max_examples=120, deadline=None)
@given(st.data(), st.integers(0, 2**32 - 1))
def test_an_output_reads_what_torch_reads(data: st.DataObject, seed: int) -> None:
    window = data.draw(windows(data.draw(st.integers(1, 3)), ["plain", "transposed"]))
    assume(even(window) or not window.transposed)
    sizes = data.draw(images(window, "zeros"))
    random = np.random.default_rng(seed)
    image, weight = (random.integers(-9, 10, shape).astype(float) for shape in (sizes, window.kernel))
    whole = Box.whole((sizes[0], *window.output_size(sizes[1:])))
    need = window.needs(whole)
    found = windowed(window, weight, padded(image, need, "zeros"), need, whole)
    expected = by_torch(window, torch.from_numpy(image)[:, None], torch.from_numpy(weight)[None, None])
    np.testing.assert_array_equal(found, expected[:, 0].numpy())


@settings(deadline=None)
@given(st.data())
def test_a_need_holds_no_more_than_the_outermost_taps(data: st.DataObject) -> None:
    window = data.draw(windows(1, ["plain"]))
    first = data.draw(st.integers(0, 9))
    last = first + data.draw(st.integers(0, 9))
    (stride,), (dilation,), (kernel,), ((before, _),) = window.stride, window.dilation, window.kernel, window.padding
    taps = [o * stride - before + k * dilation for o in range(first, last + 1) for k in range(kernel)]
    assert window.needs(Box.of((0, 2), (first, last + 1))) == Box.of((0, 2), (min(taps), max(taps) + 1))


def test_a_pool_in_ceil_mode_may_be_larger_than_its_image() -> None:
    window = Window.of(3, stride=2, ceil_mode=True)
    assert window.output_size((2, 2)) == F.max_pool2d(torch.zeros(1, 1, 2, 2), 3, 2, ceil_mode=True).shape[2:]


def test_nothing_needs_nothing() -> None:
    assert not Window.of(3, padding=1).needs(Box.of((0, 1), (2, 2), (0, 4)))
    every_other = Window.of(1, stride=2, output_padding=1, transposed=True)
    assert not every_other.needs(Box.of((0, 1), (1, 2), (0, 4))), "no input reaches the second row"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"kernel": ()}, "a window needs at least one dim"),
        ({"kernel": (3, 3), "stride": (1, 1, 1)}, "a window of 2 dims needs as many strides, dilations and paddings"),
        ({"kernel": (3, 3), "padding": [1]}, "a window of 2 dims needs as many"),
        ({"kernel": 0}, "kernel, stride and dilation are 1 or more"),
        ({"kernel": 3, "stride": 0}, "kernel, stride and dilation are 1 or more"),
        ({"kernel": 3, "dilation": -1}, "kernel, stride and dilation are 1 or more"),
        ({"kernel": 3, "padding": -1}, "padding is 0 or more"),
        ({"kernel": 3, "padding": [(0, 0), (0, -2)]}, "padding is 0 or more"),
        ({"kernel": 3, "output_padding": 1}, "output padding belongs to transposed windows"),
        ({"kernel": 3, "transposed": True, "output_padding": (1,)}, "one entry per dim"),
        ({"kernel": 3, "transposed": True, "output_padding": 1}, "output padding is less than the stride"),
        ({"kernel": 3, "transposed": True, "output_padding": -1}, "padding is 0 or more"),
        ({"kernel": 3, "transposed": True, "ceil_mode": True}, "ceil mode belongs to pools"),
    ],
)
def test_windows_that_make_no_sense(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Window.of(**options)


def test_images_that_do_not_fit() -> None:
    window = Window.of(5, padding=[(1, 0), (0, 0)], dilation=2)
    with pytest.raises(ValueError, match="spans 9 pixels does not fit an image of 7 padded by 1 and 0"):
        window.output_size((7, 20))
    with pytest.raises(ValueError, match="a window of 2 dims on an image of 3"):
        window.output_size((20, 20, 20))


def test_a_window_says_what_it_is() -> None:
    window = Window.of((3, 5), stride=2, dilation=(1, 2), padding=[(1, 2), (0, 0)], transposed=True, output_padding=1)
    assert repr(window) == (
        "Window(kernel 3x5, stride 2x2, dilation 1x2, padding 1:2x0:0, output padding 1x1, transposed)"
    )
    assert Window.point(3) == Window.of(1, dims=3)
    assert Window.of(3).reach == (3, 3)
