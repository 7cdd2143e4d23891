"""Real shapes against the chip's rules: numbers worked out by hand, and the rules written down a second time."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.coregrid.config import ComputeConfig, Conv2dConfig, SliceAxis
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.formats import DTYPES, Layout
from tessera.coregrid.networks.tables import table
from tessera.coregrid.planning.autoshard import auto_shard
from tessera.coregrid.planning.plan import ConvPlan, Setup, plan_one, planned
from tessera.coregrid.planning.sharding import ShardLayout
from tessera.coregrid.planning.slicing import cut, guess_axis, part_of, plan_sliced
from tessera.errors import TesseraError
from tessera.geometry import Mesh
from tessera.machine import load_machine
from tests.coregrid.planning.rules import ruled
from tests.coregrid.planning.shapes import convolutions, square

CHIPS = {name: load_machine(name) for name in ("wormhole-n150", "grayskull-e150", "blackhole-p150")}
N150, E150, P150 = CHIPS.values()
NETWORKS = ("resnet50", "vgg16", "mobilenet_v2", "unet")
MANY = 10_000  # sticks: with more, going through them one by one takes long


@cache
def shapes(name: str) -> tuple[Convolution, ...]:
    """The convolutions of a network, for one image."""
    return tuple(row.conv for row in table(name))


def test_the_stem_of_resnet_50() -> None:
    """6,272 tiles of output, 98 for each of 64 cores: 28 lines of 112. Eight channels times 7 are two tiles."""
    found = plan_one(
        square(16, 224, 3, 64, kernel=7, stride=2),
        N150,
        layout=ShardLayout.HEIGHT,
        input_layout=Layout.ROW_MAJOR,
        bias=True,
    )
    sharding, blocks, memory = found.sharding, found.blocks, found.footprint
    assert (sharding.cores, sharding.in_height, sharding.in_width) == (64, 12544, 8)
    assert (sharding.out_height, sharding.out_width) == (3136, 64)
    assert (blocks.act_height, blocks.act_width, blocks.inner_blocks) == (98, 2, 7)
    assert (blocks.sub_height, blocks.sub_width) == (2, 2)
    assert found.halo is not None
    # lines of 230: the last output is 27 lines of stride 2 and 111 columns of stride 2 on, its window 6 and 6 more
    assert set(found.halo.sizes) == {27 * 2 * 230 + 111 * 2 + 6 * 230 + 6 + 1}
    assert memory.halo == 14029 * 8 * 2
    assert (memory.weights, memory.act, memory.act_tilized) == (4 * 2048, 196 * 2048, 196 * 2048)
    assert memory.total == 1_441_040
    assert not found.fits  # beside the input, which takes another 200,704 bytes
    assert replace(memory, input_kept=False).high_water <= N150.local_memory


def test_a_stride_of_two_over_49_cores() -> None:
    """6,272 outputs are 196 tiles: four for each of 49 cores. A shard begins anywhere in a line, and ends in the next
    image now and then: the longest span is 26 lines and 24 columns into one image, and 3 and 11 into the next."""
    found = plan_one(square(8, 56, 128, 128, stride=2), N150, layout=ShardLayout.HEIGHT)
    sharding, blocks = found.sharding, found.blocks
    assert (sharding.cores, sharding.in_height, sharding.out_height) == (49, 512, 128)
    assert (blocks.act_height, blocks.act_width, blocks.out_width, blocks.inner_blocks) == (4, 12, 4, 3)
    assert (blocks.sub_height, blocks.sub_width) == (2, 4)
    assert found.halo is not None
    assert found.halo.sizes[12] == found.halo.largest == (3364 + 3 * 116 + 22) - (26 * 116 + 48) + 2 * 58 + 2 + 1 == 789


def test_block_on_seven_rows() -> None:
    """784 outputs are 25 tiles: eight rows of four would leave one idle, so seven. 16 tiles of channels over 8."""
    found = plan_one(square(16, 7, 512, 512), N150, layout=ShardLayout.BLOCK)
    sharding, blocks, memory = found.sharding, found.blocks, found.footprint
    assert (sharding.rows, sharding.columns, sharding.out_columns) == (7, 8, 8)
    assert (sharding.in_height, sharding.in_width, sharding.out_height, sharding.out_width) == (128, 64, 128, 64)
    assert (blocks.act_height, blocks.act_width, blocks.inner_blocks) == (4, 6, 24)
    assert (blocks.sub_height, blocks.sub_width) == (4, 2)
    assert found.halo is not None
    assert found.halo.sizes == (220, 238, 220, 240, 238, 220, 40)
    assert memory.total == 24576 + 2 * 49152 + 16384 + 240 * 64 * 2 + 64 == 170_048


def test_a_grid_of_nine_rows_of_twelve() -> None:
    """1,960 tiles over 108 cores: 19 for each of 104. Shards of 608 sticks cross from one image to the next."""
    found = plan_one(square(20, 56, 64, 64), E150, layout=ShardLayout.HEIGHT)
    assert (found.sharding.cores, found.sharding.out_height) == (104, 608)
    assert (found.blocks.sub_height, found.blocks.sub_width) == (1, 2)
    assert found.halo is not None
    assert found.halo.sizes[5] == found.halo.largest == (3364 + 9 * 58 + 7) - (54 * 58 + 16) + 2 * 58 + 2 + 1 == 864
    assert found.footprint.total == 680_000
    block = plan_one(square(20, 14, 256, 256), E150, layout=ShardLayout.BLOCK)
    assert (block.sharding.rows, block.sharding.columns) == (9, 8)  # 123 tiles, 14 for each of nine
    turned = plan_one(
        square(20, 14, 256, 256), E150, Conv2dConfig(transpose_shards=False), layout=ShardLayout.BLOCK
    ).sharding
    assert (turned.rows, turned.columns, turned.out_height) == (12, 8, 11 * 32)


def test_width_with_more_cores_for_the_output() -> None:
    """32 tiles of channels in, 64 out, a core each; all 49 windows read 239 of 256 padded sticks."""
    found = plan_one(square(1, 14, 1024, 2048, stride=2), E150, layout=ShardLayout.WIDTH)
    assert (found.sharding.columns, found.sharding.out_columns) == (32, 64)
    assert (found.blocks.act_height, found.blocks.act_width, found.blocks.inner_blocks) == (2, 9, 32)
    assert found.halo is not None
    assert found.halo.sizes == (6 * 2 * 16 + 12 + 2 * 16 + 2 + 1,) == (239,)
    assert found.footprint.act_row_major == 2 * 9 * 2048


def test_an_override_changes_cores_and_keeps_all_weights() -> None:
    """1,568 tiles: 63 cores of 25; two at a time 61 of 26, in 13 blocks, with the weights of all three kernel rows."""
    conv = square(1, 224, 64, 64)
    whole = plan_one(conv, N150, layout=ShardLayout.HEIGHT)
    cut_up = plan_one(conv, N150, Conv2dConfig(act_block_h_override=64), layout=ShardLayout.HEIGHT)
    assert (whole.sharding.cores, whole.sharding.out_height) == (63, 800)
    assert (cut_up.sharding.cores, cut_up.sharding.out_height) == (61, 832)
    assert (cut_up.blocks.act_height, cut_up.blocks.height_blocks) == (2, 13)
    assert cut_up.footprint.weights == 3 * 2 * 6 * 2048


def test_the_bottom_of_a_u_net() -> None:
    """784 sticks over seven rows, 1,024 channels over eight columns; a shard is four lines of 28 and 16 sticks more."""
    config = Conv2dConfig(enable_weights_double_buffer=True)
    found = plan_one(square(1, 28, 1024, 512), N150, config, layout=ShardLayout.BLOCK)
    assert (found.sharding.rows, found.sharding.in_width, found.sharding.out_width) == (7, 128, 64)
    assert found.footprint.weights == 2 * 12 * 2 * 2048
    assert found.footprint.halo == (5 * 30 - 13 + 2 * 30 + 2 + 1) * 128 * 2
    inner = plan_one(square(1, 28, 1024, 512), N150, replace(config, full_inner_dim=True), layout=ShardLayout.BLOCK)
    assert (inner.blocks.act_width, inner.blocks.inner_blocks) == (36, 8)


def test_depthwise_is_dense() -> None:
    """96 groups of one channel take as much as 96 channels from all 96."""
    dense = square(1, 112, 96, 96, stride=2)
    found = plan_one(replace(dense, groups=96), N150, layout=ShardLayout.HEIGHT)
    assert (found.sharding.cores, found.sharding.out_height) == (49, 64)
    assert (found.blocks.act_width, found.blocks.sub_height, found.blocks.sub_width) == (9, 2, 3)
    assert found.footprint.weights == 3 * 9 * 2048
    same = plan_one(dense, N150, layout=ShardLayout.HEIGHT)
    assert (found.footprint, found.ledger) == (same.footprint, same.ledger)


def agrees(plan: ConvPlan, **settings: Any) -> None:
    """A plan is what the rules say."""
    grid = plan.grid
    rule = ruled(plan.conv, str(plan.layout), (grid.rows, grid.cols), **settings)
    sharding, blocks = plan.sharding, plan.blocks
    assert (sharding.rows, sharding.columns, sharding.out_columns) == (rule.cores_nhw, rule.cores_in, rule.cores_out)
    assert (sharding.in_height, sharding.in_width) == rule.in_shard
    assert (sharding.out_height, sharding.out_width) == rule.out_shard
    assert (blocks.act_height, blocks.act_width, blocks.out_width) == (*rule.act_block, rule.out_width)
    assert (blocks.height_blocks, blocks.inner_blocks) == rule.blocks
    assert (blocks.sub_height, blocks.sub_width) == rule.sub_block
    parts = plan.footprint.parts()
    if plan.halo is None:  # a matmul reads its input shard where it lies
        wide = {"bfloat16": 2048, "bfloat8_b": 1088, "float32": 4096}[plan.input_dtype.name]
        tiles = sharding.in_height // 32 * (sharding.in_width // 32)
        rule.buffers["haloed input"] = tiles * wide
    else:
        assert plan.halo.sizes == tuple(last - first + 1 for first, last in rule.spans)
        if plan.conv.inputs < MANY:
            assert plan.haloing is not None
            assert [(span.start, span.stop - 1) for span in plan.haloing.ranges] == rule.spans
    expected = {name: size for name, size in rule.buffers.items() if size}
    assert {name: size for name, size in parts.items() if name != "input"} == expected
    assert plan.footprint.total == sum(expected.values())


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("chip", CHIPS)
def test_every_convolution_of_real_networks(name: str, chip: str) -> None:
    for batch, conv, layout in itertools.product((1, 8, 16, 20), shapes(name), ShardLayout):
        agrees(plan_one(replace(conv, batch=batch), CHIPS[chip], layout=layout))


@pytest.mark.parametrize("layout", ShardLayout)
@pytest.mark.parametrize("dtype", ["float32", "bfloat8_b"])
def test_formats_and_buffers(layout: ShardLayout, dtype: str) -> None:
    config = Conv2dConfig(
        dtype=DTYPES[dtype],
        weights_dtype=DTYPES[dtype],
        enable_act_double_buffer=True,
        enable_weights_double_buffer=True,
        act_block_h_override=64,
    )
    for conv in shapes("resnet50"):
        plan = plan_one(
            replace(conv, batch=8), N150, config, ComputeConfig(fp32_dest_acc_en=True), layout=layout, bias=True
        )
        agrees(
            plan,
            dtype=dtype,
            weights=dtype,
            double_act=True,
            double_weights=True,
            override=64,
            fp32=True,
            bias=True,
        )


@settings(max_examples=300, deadline=None)
@given(
    convolutions(),
    st.sampled_from(list(ShardLayout)),
    st.integers(1, 12),
    st.integers(1, 12),
    st.sampled_from([0, 32, 64, 96]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_odd_shapes(
    conv: Convolution,
    layout: ShardLayout,
    rows: int,
    cols: int,
    override: int,
    full_inner: bool,
    transposed: bool,
    row_major: bool,
) -> None:
    config = Conv2dConfig(act_block_h_override=override, full_inner_dim=full_inner, transpose_shards=transposed)
    machine = replace(N150, workers=Mesh(rows, cols))
    lies = Layout.ROW_MAJOR if row_major else Layout.TILE
    plan = plan_one(conv, machine, config, layout=layout, input_layout=lies)
    if plan.halo is None and row_major:
        return  # a matmul of rows is no case of the chip's
    agrees(plan, override=override, full_inner=full_inner, transposed=transposed, row_major_input=row_major)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_chips_own_choice_takes_least_memory(name: str) -> None:
    for batch, one in itertools.product((1, 16), shapes(name)):
        conv, totals = replace(one, batch=batch), {}
        for layout in ShardLayout:
            rule = ruled(conv, str(layout), (8, 8))
            if layout == ShardLayout.BLOCK and rule.cores_nhw * max(rule.cores_in, rule.cores_out) < 8:
                continue
            if not (layout == ShardLayout.WIDTH and conv.is_matmul):
                totals[layout] = plan_one(conv, N150, layout=layout).footprint.total
        found = auto_shard(conv, Setup(machine=N150))
        assert found.footprint.total == min(totals.values())
        assert found.layout in totals


def counted_up(conv: Convolution, setup: Setup, layout: ShardLayout) -> tuple[SliceAxis, int] | None:
    """The axis and the number of slices, tried one by one from one on."""
    freed = replace(setup, config=replace(setup.config, deallocate_activation=True))
    guessed = guess_axis(conv.height, conv.width)
    for axis in (guessed, *(other for other in SliceAxis if other is not guessed)):
        size, unit = (conv.output[0], 1) if axis is SliceAxis.HEIGHT else (conv.output[1], 32)
        for count in range(1, -(-size // unit) + 1):
            parts = [part_of(conv, axis, output)[0] for output in cut(size, count, unit)]
            if all(planned(part, layout, freed).fits for part in set(parts)):
                return axis, len(parts)
    return None


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 3),
    st.sampled_from([20, 33, 64, 96]),
    st.sampled_from([20, 64, 224]),
    st.sampled_from([8, 64, 160]),
    st.sampled_from([1, 3, 5]),
    st.integers(1, 2),
    st.sampled_from(list(ShardLayout)),
    st.integers(60_000, 900_000),
    st.sampled_from([0, 32, 96]),
)
def test_slices_are_counted_up_from_one(
    batch: int,
    height: int,
    width: int,
    channels: int,
    kernel: int,
    stride: int,
    layout: ShardLayout,
    memory: int,
    override: int,
) -> None:
    conv = replace(square(batch, height, channels, channels, kernel=kernel, stride=stride), width=width)
    machine = replace(N150, workers=Mesh(2, 2), local_memory=memory)
    setup = Setup(machine=machine, config=Conv2dConfig(act_block_h_override=override))
    expected = counted_up(conv, setup, layout)
    if expected is None:
        with pytest.raises(TesseraError, match="no slice"):
            plan_sliced(conv, setup, layout=layout)
        return
    found = plan_sliced(conv, setup, layout=layout)
    assert max(1, len(found.slices)) == expected[1]
    if found.slices and expected[1] > 1:
        assert found.slices[0].axis is expected[0]
