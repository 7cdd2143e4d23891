"""Tests of transposed convolutions on tiles: results equal torch's."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn

from tests.spatial.tensor.agreement import MeshCounts, check_agreement, meshes, quick, seeds

TRANSPOSED: dict[int, Any] = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}


@st.composite
def draw_transposed(draw: st.DrawFn, dims: int) -> tuple[nn.Module, tuple[int, ...]]:
    def each(values: st.SearchStrategy[int]) -> tuple[int, ...]:
        return tuple(draw(values) for _ in range(dims))

    kernel, stride, dilation = each(st.integers(1, 4)), each(st.integers(1, 4)), each(st.integers(1, 2))
    output_padding = tuple(draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation, strict=True))
    padding, sizes = each(st.integers(0, 2)), each(st.integers(1, 7 if dims < 3 else 4))
    for k, s, d, more, p, size in zip(kernel, stride, dilation, output_padding, padding, sizes, strict=True):
        assume((size - 1) * s + (k - 1) * d + 1 - 2 * p + more >= 1)
    groups = draw(st.integers(1, 2))
    channels, filters = groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 2))
    module = TRANSPOSED[dims](
        channels,
        filters,
        kernel,
        stride=stride,
        dilation=dilation,
        padding=padding,
        output_padding=output_padding,
        groups=groups,
        bias=draw(st.booleans()),
    )
    return module, (draw(st.integers(1, 2)), channels, *sizes)


@quick
@given(case=draw_transposed(2), mesh=meshes, seed=seeds, last=st.booleans())
def test_any_transposed_convolution_of_images(case: Any, mesh: MeshCounts, seed: int, last: bool) -> None:
    module, shape = case
    check_agreement(module, shape, mesh, seed, channels_last=last)


@pytest.mark.parametrize("dims", [1, 3])
@quick
@given(data=st.data(), mesh=meshes, seed=seeds)
def test_any_transposed_convolution_of_signals_and_volumes(dims: int, data: Any, mesh: MeshCounts, seed: int) -> None:
    module, shape = data.draw(draw_transposed(dims))
    check_agreement(module, shape, mesh, seed, rounds=1)


@quick
@given(case=draw_transposed(2), mesh=meshes, seed=seeds, kind=st.sampled_from(["samples", "channels", "whole"]))
def test_transposed_convolutions_of_other_layouts(case: Any, mesh: MeshCounts, seed: int, kind: Any) -> None:
    module, shape = case
    check_agreement(module, shape, mesh, seed, kind=kind, rounds=1)


def test_a_stride_longer_than_the_window_leaves_holes_with_the_bias() -> None:
    check_agreement(nn.ConvTranspose2d(2, 2, 1, stride=4, output_padding=3), (1, 2, 2, 3), (3, 2), 2)
