"""Tests of the reference convolutions, compared with torch in double precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.operators import reference as ref

attribute = st.integers(1, 3)


@st.composite
def layers(draw, transposed):
    """Draw the data, weight, bias and attributes of a random convolution."""
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    dims, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    inside, outside = groups * draw(attribute), groups * draw(attribute)
    given = {name: tuple(draw(attribute) for _ in range(dims)) for name in ("stride", "dilation")}
    given |= {"padding": tuple(draw(st.integers(0, 1)) for _ in range(dims)), "groups": groups}
    kernel = tuple(draw(attribute) for _ in range(dims))
    space = tuple(draw(st.integers(7, 9)) for _ in range(dims))
    if transposed:
        given["output_padding"] = tuple(
            draw(st.integers(0, max(s, d) - 1)) for s, d in zip(given["stride"], given["dilation"], strict=True)
        )
        weight = (inside, outside // groups, *kernel)
    else:
        weight = (outside, inside // groups, *kernel)
    arrays = [rng.standard_normal(shape) for shape in ((2, inside, *space), weight, (outside,))]
    return arrays[: draw(st.integers(2, 3))], given


@pytest.mark.parametrize("transposed", [False, True])
@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_convolution_matches_torch(data, transposed):
    arrays, given = data.draw(layers(transposed=transposed))
    function = getattr(F, f"conv{'_transpose' if transposed else ''}{arrays[0].ndim - 2}d")
    expected = function(*map(torch.from_numpy, arrays), **given)
    result = (ref.transposed_convolution if transposed else ref.convolution)(*arrays, **given)
    np.testing.assert_allclose(result, expected, atol=1e-10)


@given(st.integers(0, 2**31), attribute, attribute, attribute, st.integers(0, 2))
@settings(max_examples=20, deadline=None)
def test_convolution_over_time_matches_torch(seed, kernel, channels, out, pad):
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal(shape) for shape in ((7, 2, channels), (kernel, channels, out), (out,))]
    expected = torch.conv_tbc(*map(torch.from_numpy, arrays), pad)
    np.testing.assert_allclose(ref.time_convolution(*arrays, pad), expected, atol=1e-10)
