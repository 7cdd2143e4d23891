"""Slices through global memory: cut as the chip cuts them, and together the whole convolution."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.nn import functional

from tessera.coregrid.config import Conv2dConfig, SliceAxis, SliceConfig
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.device.arena import OutOfMemory
from tessera.coregrid.formats import Layout
from tessera.coregrid.planning.knobs import advice, knobs
from tessera.coregrid.planning.plan import Setup
from tessera.coregrid.planning.sharding import ShardLayout
from tessera.coregrid.planning.slicing import cut, guess_axis, part_of, plan_sliced
from tessera.errors import TesseraError
from tessera.machine import load_machine
from tests.coregrid.planning.shapes import convolutions, square

N150 = load_machine("wormhole-n150")
SETUP = Setup(machine=N150)


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
def test_the_axis_that_is_tried_first(height: int, width: int, layout: Layout, axis: str) -> None:
    assert guess_axis(height, width, layout) == axis


@given(st.integers(1, 300), st.integers(1, 40), st.sampled_from([1, 32]))
def test_cuts_are_even_and_whole(size: int, count: int, unit: int) -> None:
    parts = cut(size, count, unit)
    assert parts[0].start == 0
    assert parts[-1].stop == size
    assert all(a.stop == b.start for a, b in itertools.pairwise(parts))
    assert all(part.start % unit == 0 for part in parts)
    assert len(parts) == min(count, -(-size // unit))
    units = [-(-len(part) // unit) for part in parts]
    assert max(units) - min(units) <= 1


@settings(max_examples=150, deadline=None)
@given(convolutions(), st.sampled_from(list(SliceAxis)), st.integers(1, 6), st.integers(0, 2**31))
def test_slices_together_are_the_whole(conv: Convolution, axis: SliceAxis, count: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    images = torch.randn(conv.batch, 3, conv.height, conv.width, generator=draw)
    weights = torch.randn(2, 3, *conv.kernel, generator=draw)

    def torchs(part: Convolution, given: torch.Tensor) -> torch.Tensor:
        (top, bottom), (left, right) = part.padding
        padded = functional.pad(given, (left, right, top, bottom))
        return functional.conv2d(padded, weights, None, part.stride, 0, part.dilation)

    dim = 0 if axis is SliceAxis.HEIGHT else 1
    made = []
    for output in cut(conv.output[dim], count):
        try:
            part, taken = part_of(conv, axis, output)
        except TesseraError:
            assume(False)
        given_part = images[:, :, taken.slice] if dim == 0 else images[..., taken.slice]
        assert part.output[dim] == len(output)
        made.append(torchs(part, given_part))
    torch.testing.assert_close(torch.cat(made, dim=2 + dim), torchs(conv, images))


def test_as_many_slices_as_it_takes() -> None:
    conv = square(1, 512, 64, 64)
    found = plan_sliced(conv, SETUP, layout=ShardLayout.HEIGHT)
    count = len(found.slices)
    assert count > 1
    assert found.fits
    assert found.high_water == max(part.plan.high_water for part in found.slices)
    assert {part.axis for part in found.slices} == {SliceAxis.WIDTH}
    with_fewer = plan_sliced(
        conv, SETUP, SliceConfig(axis=SliceAxis.WIDTH, num_slices=count - 1), layout=ShardLayout.HEIGHT
    )
    assert not with_fewer.fits
    assert [part.output.start % 32 for part in found.slices] == [0] * count


def test_the_bytes_are_those_of_all_slices_and_of_global_memory() -> None:
    conv = square(2, 64, 32, 64)
    found = plan_sliced(conv, SETUP, SliceConfig(axis=SliceAxis.HEIGHT, num_slices=4), layout=ShardLayout.HEIGHT)
    assert len(found.slices) == 4
    lines = 4 * 16 + 2 * 3  # three borders are read from both sides
    weights = sum(part.plan.ledger.global_read for part in found.slices)
    assert found.ledger.global_read == weights + 2 * lines * 64 * 32 * 2
    assert found.ledger.global_written == 2 * 64 * 64 * 64 * 2


def test_what_saves_memory_is_that_of_the_largest_slice() -> None:
    conv = square(8, 224, 64, 64)
    found = plan_sliced(conv, SETUP, SliceConfig(axis="height", num_slices=2), layout=ShardLayout.HEIGHT)
    assert not found.fits
    assert "more slices take less" in advice(found)
    tried = knobs(found)
    assert tried
    for knob in tried:
        other = plan_sliced(conv, replace(SETUP, config=knob.config), SliceConfig(axis="height", num_slices=2))
        assert found.high_water - other.high_water == knob.saves
        assert other.fits == knob.fits


def test_what_fits_whole_has_no_slices() -> None:
    assert plan_sliced(square(1, 14, 64, 64), SETUP).slices == ()


def test_what_does_not_fit_in_slices_says_so() -> None:
    conv = square(1, 8, 4096, 4096)
    with pytest.raises(OutOfMemory, match=r"no slice .* fits.*MB per core at least.*up to 1\.43 MB"):
        plan_sliced(conv, Setup(machine=N150, config=Conv2dConfig()), layout=ShardLayout.HEIGHT)
