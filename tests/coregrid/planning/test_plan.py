"""Plans: what is chosen for a call, what is refused, and what an error says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.coregrid.config import Conv2dConfig, SliceConfig
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.formats import Layout
from tessera.coregrid.planning.autoshard import auto_shard
from tessera.coregrid.planning.choose import plan_call
from tessera.coregrid.planning.knobs import advice, knobs
from tessera.coregrid.planning.plan import Setup, plan_one, planned
from tessera.coregrid.planning.sharding import ShardLayout
from tessera.errors import TesseraError
from tessera.geometry import Mesh
from tessera.machine import load_machine
from tests.coregrid.planning.shapes import convolutions, square

N150 = load_machine("wormhole_n150")
SETUP = Setup(machine=N150)
LARGE = square(8, 112, 64, 64)


def test_a_one_by_one_is_a_matmul_in_groups_too() -> None:
    assert square(1, 8, 32, 32, kernel=1).is_matmul
    assert replace(square(1, 8, 32, 32, kernel=1), groups=4).is_matmul
    assert not square(1, 8, 32, 32, kernel=1, stride=2).is_matmul
    assert not square(1, 8, 32, 32).is_matmul


def test_auto_shard_takes_least_memory() -> None:
    for conv in (square(8, 56, 64, 64), square(16, 14, 256, 256), square(1, 7, 512, 512), LARGE):
        found = auto_shard(conv, SETUP)
        totals = {layout: planned(conv, layout, SETUP).footprint.total for layout in ShardLayout}
        assert found.footprint.total == min(totals.values())


def test_auto_shard_leaves_out_what_may_not_be() -> None:
    matmul = square(1, 7, 2048, 512, kernel=1)
    least = min(ShardLayout, key=lambda layout: planned(matmul, layout, SETUP).footprint.total)
    assert least == ShardLayout.WIDTH
    assert auto_shard(matmul, SETUP).layout != ShardLayout.WIDTH
    few = square(1, 7, 32, 32)  # one column of channels, two rows of cores: fewer than the grid has columns
    assert planned(few, ShardLayout.BLOCK, SETUP).sharding.cores < 8
    assert auto_shard(few, SETUP).layout != ShardLayout.BLOCK


def test_what_a_call_does() -> None:
    conv = square(2, 28, 64, 64)
    asked = Setup(machine=N150, config=Conv2dConfig(shard_layout=ShardLayout.BLOCK))
    assert plan_call(conv, asked, lies=ShardLayout.HEIGHT).layout == ShardLayout.BLOCK
    assert plan_call(conv, SETUP, lies=ShardLayout.HEIGHT).layout == ShardLayout.HEIGHT
    free = Setup(machine=N150, config=Conv2dConfig(reshard_if_not_optimal=True))
    assert plan_call(conv, free, lies=ShardLayout.HEIGHT).layout == auto_shard(conv, free).layout
    assert len(plan_call(conv, SETUP, slices=SliceConfig(num_slices=2)).slices) == 2


def test_out_of_memory_names_need_have_and_a_knob() -> None:
    with pytest.raises(TesseraError) as raised:
        plan_call(LARGE, SETUP, lies=ShardLayout.HEIGHT)
    said = str(raised.value)
    assert said.startswith("out of memory: HEIGHT does not fit: needs ")
    assert " MB per core, has 1.43; " in said
    assert " saves " in said
    sliced = plan_call(LARGE, SETUP, lies=ShardLayout.HEIGHT, in_global_memory=True)
    assert sliced.fits


def test_the_knob_that_is_named_saves_what_it_says() -> None:
    plan = planned(LARGE, ShardLayout.HEIGHT, SETUP)
    assert not plan.fits
    for knob in knobs(plan):
        other = planned(LARGE, ShardLayout.HEIGHT, replace(SETUP, config=knob.config))
        assert plan.high_water - other.high_water == knob.saves > 0
        assert knob.fits == other.fits
    named = next(knob for knob in knobs(plan) if str(knob) in advice(plan))
    assert named.fits == any(knob.fits for knob in knobs(plan))


def test_what_fits_needs_no_advice() -> None:
    plan = planned(square(1, 14, 64, 64), ShardLayout.HEIGHT, SETUP)
    assert advice(plan) == plan.reason
    assert plan.reason.startswith("HEIGHT fits: needs 0.")


def test_a_grid_larger_than_the_device() -> None:
    with pytest.raises(TesseraError, match=r"larger than wormhole-n150.*9x8.*up to 8x8"):
        plan_one(LARGE, N150, layout=ShardLayout.HEIGHT, grid=Mesh(9, 8))


def test_a_layout_must_come_from_somewhere() -> None:
    with pytest.raises(TesseraError, match="needs a layout"):
        plan_one(LARGE, N150)


def test_the_alignment_of_channels() -> None:
    stem = square(1, 224, 3, 64, kernel=7, stride=2)

    def width(layout: Layout, **config: int) -> int:
        setup = Setup(machine=N150, config=Conv2dConfig(**config), input_layout=layout)
        return planned(stem, ShardLayout.HEIGHT, setup).sharding.in_width

    assert width(Layout.ROW_MAJOR) == 8
    assert width(Layout.TILE) == 32
    assert width(Layout.TILE, input_channels_alignment=16) == 32  # shards in tiles are whole tiles wide
    assert width(Layout.ROW_MAJOR, input_channels_alignment=16) == 16


def test_a_grid_that_is_insisted_on_is_used_whole() -> None:
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
