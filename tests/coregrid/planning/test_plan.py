"""Tests of convolution plans: the layout that a call uses, refused settings, and error messages."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.coregrid.config import Conv2dConfig, ShardLayout, SliceConfig
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.formats import Layout
from tessera.coregrid.planning.plan import (
    explain_fit,
    list_memory_savings,
    plan_default_layout,
    plan_layout,
    plan_one,
)
from tessera.coregrid.planning.setup import ConvSetup
from tessera.coregrid.planning.slicing import plan_conv2d_call
from tessera.errors import TesseraError
from tessera.geometry import Mesh
from tessera.machine import load_machine
from tests.coregrid.planning.shapes import convolutions, square

N150 = load_machine("wormhole_n150")
SETUP = ConvSetup(machine=N150)
LARGE = square(8, 112, 64, 64)


def test_grouped_1x1_convolution_is_a_matmul() -> None:
    assert square(1, 8, 32, 32, kernel=1).is_matmul
    assert replace(square(1, 8, 32, 32, kernel=1), groups=4).is_matmul
    assert not square(1, 8, 32, 32, kernel=1, stride=2).is_matmul
    assert not square(1, 8, 32, 32).is_matmul


def test_default_layout_has_the_least_memory() -> None:
    for conv in (square(8, 56, 64, 64), square(16, 14, 256, 256), square(1, 7, 512, 512), LARGE):
        plan = plan_default_layout(conv, SETUP)
        totals = {layout: plan_layout(conv, layout, SETUP).footprint.total for layout in ShardLayout}
        assert plan.footprint.total == min(totals.values())


def test_default_layout_skips_excluded_layouts() -> None:
    matmul = square(1, 7, 2048, 512, kernel=1)
    least = min(ShardLayout, key=lambda layout: plan_layout(matmul, layout, SETUP).footprint.total)
    assert least == ShardLayout.WIDTH
    assert plan_default_layout(matmul, SETUP).layout != ShardLayout.WIDTH
    few = square(1, 7, 32, 32)  # two cores in BLOCK layout, fewer than the grid has columns
    assert plan_layout(few, ShardLayout.BLOCK, SETUP).sharding.cores < 8
    assert plan_default_layout(few, SETUP).layout != ShardLayout.BLOCK


def test_layout_of_a_conv2d_call() -> None:
    conv = square(2, 28, 64, 64)
    requested = ConvSetup(machine=N150, config=Conv2dConfig(shard_layout=ShardLayout.BLOCK))
    assert plan_conv2d_call(conv, requested).layout == ShardLayout.BLOCK
    assert plan_conv2d_call(conv, SETUP).layout == plan_default_layout(conv, SETUP).layout
    assert len(plan_conv2d_call(conv, SETUP, slices=SliceConfig(num_slices=2)).slices) == 2


def test_out_of_memory_names_required_memory_and_a_setting() -> None:
    with pytest.raises(TesseraError) as raised:
        plan_conv2d_call(LARGE, SETUP, layout=ShardLayout.HEIGHT)
    message = str(raised.value)
    assert message.startswith("out of memory: HEIGHT does not fit: needs ")
    assert " MiB per core, has 1.33; " in message
    assert " saves " in message
    sliced = plan_conv2d_call(LARGE, SETUP, layout=ShardLayout.HEIGHT, in_global_memory=True)
    assert sliced.fits


def test_named_setting_saves_the_stated_memory() -> None:
    plan = plan_layout(LARGE, ShardLayout.HEIGHT, SETUP)
    assert not plan.fits
    for saving in list_memory_savings(plan):
        cheaper = plan_layout(LARGE, ShardLayout.HEIGHT, replace(SETUP, config=saving.config))
        assert plan.high_water - cheaper.high_water == saving.saves > 0
        assert saving.fits == cheaper.fits
    named = next(saving for saving in list_memory_savings(plan) if str(saving) in explain_fit(plan))
    assert named.fits == any(saving.fits for saving in list_memory_savings(plan))


def test_fitting_plans_need_no_advice() -> None:
    plan = plan_layout(square(1, 14, 64, 64), ShardLayout.HEIGHT, SETUP)
    assert explain_fit(plan) == plan.fit_summary
    assert plan.fit_summary.startswith("HEIGHT fits: needs 0.")


def test_grid_larger_than_the_device_is_an_error() -> None:
    with pytest.raises(TesseraError, match=r"larger than wormhole-n150.*9x8.*up to 8x8"):
        plan_one(LARGE, N150, layout=ShardLayout.HEIGHT, grid=Mesh(9, 8))


def test_plan_one_requires_a_layout() -> None:
    with pytest.raises(TesseraError, match="requires a layout"):
        plan_one(LARGE, N150)


def test_channel_alignment() -> None:
    stem = square(1, 224, 3, 64, kernel=7, stride=2)

    def compute_width(layout: Layout, **config: int) -> int:
        setup = ConvSetup(machine=N150, config=Conv2dConfig(**config), input_layout=layout)
        return plan_layout(stem, ShardLayout.HEIGHT, setup).sharding.in_width

    assert compute_width(Layout.ROW_MAJOR) == 8
    assert compute_width(Layout.TILE) == 32
    assert compute_width(Layout.TILE, input_channels_alignment=16) == 32  # width in whole tiles
    assert compute_width(Layout.ROW_MAJOR, input_channels_alignment=16) == 16


def test_required_grid_is_used_completely() -> None:
    config = Conv2dConfig(shard_layout=ShardLayout.HEIGHT, override_sharding_config=True, core_grid=Mesh(2, 2))
    plan = plan_one(square(1, 7, 64, 64), N150, config)
    assert plan.sharding.rows == 4
    assert plan.halo is not None
    assert plan.halo.sizes[2:] == (0, 0)


@settings(max_examples=200, deadline=None)
@given(convolutions(), st.sampled_from(list(ShardLayout)), st.integers(1, 8), st.integers(1, 8), st.integers(0, 4))
def test_any_shape_can_be_planned(conv: Convolution, layout: ShardLayout, down: int, across: int, tiles: int) -> None:
    config = Conv2dConfig(act_block_h_override=32 * tiles)
    plan = plan_one(conv, N150, config, layout=layout, grid=Mesh(down, across), bias=True)
    blocks, sharding = plan.blocks, plan.sharding
    assert blocks.act_height * blocks.height_blocks * 32 == sharding.out_height
    assert blocks.out_width * 32 == sharding.out_width
    assert plan.footprint.high_water >= plan.footprint.total
    taps = conv.kernel[0] * conv.kernel[1]
    assert blocks.inner_blocks * blocks.act_width * 32 >= sharding.columns * sharding.in_width * taps
