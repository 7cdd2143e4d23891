"""Tests of convolutions sliced through global memory: the split of the chip, and the sum of all slices."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.nn import functional

from tessera.coregrid.config import Conv2dConfig, ShardLayout, SliceAxis, SliceConfig
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.formats import Layout
from tessera.coregrid.planning.memory import OutOfMemory
from tessera.coregrid.planning.plan import explain_fit, list_memory_savings
from tessera.coregrid.planning.setup import ConvSetup
from tessera.coregrid.planning.slicing import choose_slice_axis, plan_sliced, slice_convolution, split_into_slices
from tessera.errors import TesseraError
from tessera.machine import load_machine
from tests.coregrid.planning.shapes import convolutions, square

N150 = load_machine("wormhole-n150")
SETUP = ConvSetup(machine=N150)


@pytest.mark.parametrize(
    ("height", "width", "layout", "axis"),
    [
        (300, 100, Layout.ROW_MAJOR, "width"),
        (301, 100, Layout.ROW_MAJOR, "height"),
        (100, 300, Layout.ROW_MAJOR, "width"),
        (100, 199, Layout.TILE, "height"),
        (100, 200, Layout.TILE, "width"),
        (200, 200, Layout.TILE, "width"),
        (201, 200, Layout.TILE, "height"),
    ],
)
def test_first_slice_axis(height: int, width: int, layout: Layout, axis: str) -> None:
    assert choose_slice_axis(height, width, layout) == axis


@given(st.integers(1, 300), st.integers(1, 40), st.sampled_from([1, 32]))
def test_slices_are_even_and_of_whole_units(size: int, count: int, unit: int) -> None:
    parts = split_into_slices(size, count, unit)
    assert parts[0].start == 0
    assert parts[-1].stop == size
    assert all(a.stop == b.start for a, b in itertools.pairwise(parts))
    assert all(part.start % unit == 0 for part in parts)
    assert len(parts) == min(count, -(-size // unit))
    units = [-(-len(part) // unit) for part in parts]
    assert max(units) - min(units) <= 1


@settings(max_examples=150, deadline=None)
@given(convolutions(), st.sampled_from(list(SliceAxis)), st.integers(1, 6), st.integers(0, 2**31))
def test_joined_slices_equal_the_whole_convolution(conv: Convolution, axis: SliceAxis, count: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    images = torch.randn(conv.batch, 3, conv.height, conv.width, generator=draw)
    weights = torch.randn(2, 3, *conv.kernel, generator=draw)

    def convolve_by_torch(part: Convolution, images: torch.Tensor) -> torch.Tensor:
        (top, bottom), (left, right) = part.padding
        padded = functional.pad(images, (left, right, top, bottom))
        return functional.conv2d(padded, weights, None, part.stride, 0, part.dilation)

    dim = 0 if axis is SliceAxis.HEIGHT else 1
    outputs = []
    for output in split_into_slices(conv.output_size[dim], count):
        try:
            part, input_box = slice_convolution(conv, axis, output)
        except TesseraError:
            assume(False)
        given_part = images[:, :, input_box.slice] if dim == 0 else images[..., input_box.slice]
        assert part.output_size[dim] == len(output)
        outputs.append(convolve_by_torch(part, given_part))
    torch.testing.assert_close(torch.cat(outputs, dim=2 + dim), convolve_by_torch(conv, images))


def test_fewest_slices_that_fit() -> None:
    conv = square(1, 512, 64, 64)
    plan = plan_sliced(conv, SETUP, layout=ShardLayout.HEIGHT)
    count = len(plan.slices)
    assert count > 1
    assert plan.fits
    assert plan.high_water == max(part.plan.high_water for part in plan.slices)
    assert {part.axis for part in plan.slices} == {SliceAxis.WIDTH}
    with_fewer = plan_sliced(
        conv, SETUP, SliceConfig(axis=SliceAxis.WIDTH, num_slices=count - 1), layout=ShardLayout.HEIGHT
    )
    assert not with_fewer.fits
    assert [part.output.start % 32 for part in plan.slices] == [0] * count


def test_bytes_of_a_sliced_plan_include_global_memory() -> None:
    conv = square(2, 64, 32, 64)
    plan = plan_sliced(conv, SETUP, SliceConfig(axis=SliceAxis.HEIGHT, num_slices=4), layout=ShardLayout.HEIGHT)
    assert len(plan.slices) == 4
    lines = 4 * 16 + 2 * 3  # both slices at each of three borders read a halo line
    weights = sum(part.plan.ledger.global_read for part in plan.slices)
    assert plan.ledger.global_read == weights + 2 * lines * 64 * 32 * 2
    assert plan.ledger.global_written == 2 * 64 * 64 * 64 * 2


def test_savings_of_the_largest_slice() -> None:
    conv = square(8, 224, 64, 64)
    plan = plan_sliced(conv, SETUP, SliceConfig(axis="height", num_slices=2), layout=ShardLayout.HEIGHT)
    assert not plan.fits
    assert "more slices need less memory" in explain_fit(plan)
    tried = list_memory_savings(plan)
    assert tried
    for saving in tried:
        cheaper = plan_sliced(conv, replace(SETUP, config=saving.config), SliceConfig(axis="height", num_slices=2))
        assert plan.high_water - cheaper.high_water == saving.saves
        assert cheaper.fits == saving.fits


def test_fitting_convolutions_have_no_slices() -> None:
    assert plan_sliced(square(1, 14, 64, 64), SETUP).slices == ()


def test_error_if_no_slice_fits() -> None:
    conv = square(1, 8, 4096, 4096)
    with pytest.raises(OutOfMemory, match=r"no slice .* fits.*MiB per core at least.*up to 1\.33 MiB"):
        plan_sliced(conv, ConvSetup(machine=N150, config=Conv2dConfig()), layout=ShardLayout.HEIGHT)
