"""Tests of the plans of real shapes, compared with numbers computed by hand and with a second implementation."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.coregrid.config import ComputeConfig, Conv2dConfig, ShardLayout, SliceAxis
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.formats import DTYPES, Layout
from tessera.coregrid.networks.layers import build_table
from tessera.coregrid.planning.plan import ConvPlan, plan_default_layout, plan_layout, plan_one
from tessera.coregrid.planning.setup import ConvSetup
from tessera.coregrid.planning.slicing import choose_slice_axis, plan_sliced, slice_convolution, split_into_slices
from tessera.errors import TesseraError
from tessera.geometry import Mesh
from tessera.machine import load_machine
from tests.coregrid.planning.rules import apply_rules
from tests.coregrid.planning.shapes import convolutions, square

CHIPS = {name: load_machine(name) for name in ("wormhole-n150", "grayskull-e150", "blackhole-p150")}
N150, E150, P150 = CHIPS.values()
NETWORKS = ("resnet50", "vgg16", "mobilenet_v2", "unet")
MAX_COMPARED_STICKS = 10_000  # sticks; halo spans are only compared below this number


@cache
def list_shapes(name: str) -> tuple[Convolution, ...]:
    """Return the convolutions of a network for a batch of one image."""
    return tuple(row.conv for row in build_table(name))


def test_plan_of_the_resnet_50_stem() -> None:
    """Each of 64 cores has 98 of 6,272 output tiles: 28 lines of 112. A block of 8 channels x 7 is two tiles wide."""
    plan = plan_one(
        square(16, 224, 3, 64, kernel=7, stride=2),
        N150,
        layout=ShardLayout.HEIGHT,
        input_layout=Layout.ROW_MAJOR,
        bias=True,
    )
    sharding, blocks, memory = plan.sharding, plan.blocks, plan.footprint
    assert (sharding.cores, sharding.in_height, sharding.in_width) == (64, 12544, 8)
    assert (sharding.out_height, sharding.out_width) == (3136, 64)
    assert (blocks.act_height, blocks.act_width, blocks.inner_blocks) == (98, 2, 7)
    assert (blocks.sub_height, blocks.sub_width) == (2, 2)
    assert plan.halo is not None
    # padded lines have 230 sticks; from the first to the last window: 27 lines and 111 columns, stride 2; kernel: + 6
    assert set(plan.halo.sizes) == {27 * 2 * 230 + 111 * 2 + 6 * 230 + 6 + 1}
    assert memory.halo == 14029 * 8 * 2
    assert (memory.weights, memory.act, memory.act_tilized) == (4 * 2048, 196 * 2048, 196 * 2048)
    assert memory.total == 1_441_040
    assert not plan.fits  # because the input needs another 200,704 bytes
    assert N150.local_memory < replace(memory, input_kept=False).high_water <= 1_499_136  # the physical memory


def test_plan_with_stride_two_over_49_cores() -> None:
    """Each of 49 cores has four of 196 output tiles. A shard may start within a line, and end in the next image.

    The longest span starts at line 26, column 24 of one image and ends at line 3, column 11 of the next.
    """
    plan = plan_one(square(8, 56, 128, 128, stride=2), N150, layout=ShardLayout.HEIGHT)
    sharding, blocks = plan.sharding, plan.blocks
    assert (sharding.cores, sharding.in_height, sharding.out_height) == (49, 512, 128)
    assert (blocks.act_height, blocks.act_width, blocks.out_width, blocks.inner_blocks) == (4, 12, 4, 3)
    assert (blocks.sub_height, blocks.sub_width) == (2, 4)
    assert plan.halo is not None
    assert plan.halo.sizes[12] == plan.halo.largest == (3364 + 3 * 116 + 22) - (26 * 116 + 48) + 2 * 58 + 2 + 1 == 789


def test_block_plan_on_seven_rows() -> None:
    """25 output tiles, four per core row, need only seven of eight core rows. 16 tiles of channels are on 8 columns."""
    plan = plan_one(square(16, 7, 512, 512), N150, layout=ShardLayout.BLOCK)
    sharding, blocks, memory = plan.sharding, plan.blocks, plan.footprint
    assert (sharding.rows, sharding.columns, sharding.out_columns) == (7, 8, 8)
    assert (sharding.in_height, sharding.in_width, sharding.out_height, sharding.out_width) == (128, 64, 128, 64)
    assert (blocks.act_height, blocks.act_width, blocks.inner_blocks) == (4, 6, 24)
    assert (blocks.sub_height, blocks.sub_width) == (4, 2)
    assert plan.halo is not None
    assert plan.halo.sizes == (220, 238, 220, 240, 238, 220, 40)
    assert memory.total == 24576 + 2 * 49152 + 16384 + 240 * 64 * 2 + 64 == 170_048


def test_block_plan_on_a_9x12_grid() -> None:
    """1,960 tiles, 19 per core, use 104 of 108 cores. Shards of 608 sticks may span two images."""
    plan = plan_one(square(20, 56, 64, 64), E150, layout=ShardLayout.HEIGHT)
    assert (plan.sharding.cores, plan.sharding.out_height) == (104, 608)
    assert (plan.blocks.sub_height, plan.blocks.sub_width) == (1, 2)
    assert plan.halo is not None
    assert plan.halo.sizes[5] == plan.halo.largest == (3364 + 9 * 58 + 7) - (54 * 58 + 16) + 2 * 58 + 2 + 1 == 864
    assert plan.footprint.total == 680_000
    block = plan_one(square(20, 14, 256, 256), E150, layout=ShardLayout.BLOCK)
    assert (block.sharding.rows, block.sharding.columns) == (9, 8)  # 123 tiles, 14 per core row
    turned = plan_one(
        square(20, 14, 256, 256), E150, Conv2dConfig(transpose_shards=True), layout=ShardLayout.BLOCK
    ).sharding
    assert (turned.rows, turned.columns, turned.out_height) == (12, 8, 11 * 32)


def test_width_with_more_cores_for_the_output() -> None:
    """32 cores have one tile of input channels, 64 cores one of output channels; windows span 239 padded sticks."""
    plan = plan_one(square(1, 14, 1024, 2048, stride=2), E150, layout=ShardLayout.WIDTH)
    assert (plan.sharding.columns, plan.sharding.out_columns) == (32, 64)
    assert (plan.blocks.act_height, plan.blocks.act_width, plan.blocks.inner_blocks) == (2, 9, 32)
    assert plan.halo is not None
    assert plan.halo.sizes == (6 * 2 * 16 + 12 + 2 * 16 + 2 + 1,) == (239,)
    assert plan.footprint.act_row_major == 2 * 9 * 2048


def test_an_override_changes_cores_and_keeps_all_weights() -> None:
    """1,568 tiles are 25 on each of 63 cores; with blocks of two tiles, 26 on each of 61 cores, in 13 blocks."""
    conv = square(1, 224, 64, 64)
    whole = plan_one(conv, N150, layout=ShardLayout.HEIGHT)
    cut_up = plan_one(conv, N150, Conv2dConfig(act_block_h_override=64), layout=ShardLayout.HEIGHT)
    assert (whole.sharding.cores, whole.sharding.out_height) == (63, 800)
    assert (cut_up.sharding.cores, cut_up.sharding.out_height) == (61, 832)
    assert (cut_up.blocks.act_height, cut_up.blocks.height_blocks) == (2, 13)
    assert cut_up.footprint.weights == 3 * 2 * 6 * 2048


def test_plan_of_the_deepest_u_net_convolution() -> None:
    """784 sticks are on seven core rows, four lines of 28 and 16 sticks each; 1,024 channels are on eight columns."""
    config = Conv2dConfig(enable_weights_double_buffer=True)
    plan = plan_one(square(1, 28, 1024, 512), N150, config, layout=ShardLayout.BLOCK)
    assert (plan.sharding.rows, plan.sharding.in_width, plan.sharding.out_width) == (7, 128, 64)
    assert plan.footprint.weights == 2 * 12 * 2 * 2048
    assert plan.footprint.halo == (5 * 30 - 13 + 2 * 30 + 2 + 1) * 128 * 2
    inner = plan_one(square(1, 28, 1024, 512), N150, replace(config, full_inner_dim=True), layout=ShardLayout.BLOCK)
    assert (inner.blocks.act_width, inner.blocks.inner_blocks) == (36, 8)


def test_depthwise_convolution_is_planned_as_dense() -> None:
    """A convolution of 96 groups needs the memory and bytes of a dense convolution of 96 channels."""
    dense = square(1, 112, 96, 96, stride=2)
    plan = plan_one(replace(dense, groups=96), N150, layout=ShardLayout.HEIGHT)
    assert (plan.sharding.cores, plan.sharding.out_height) == (49, 64)
    assert (plan.blocks.act_width, plan.blocks.sub_height, plan.blocks.sub_width) == (9, 2, 3)
    assert plan.footprint.weights == 3 * 9 * 2048
    same = plan_one(dense, N150, layout=ShardLayout.HEIGHT)
    assert (plan.footprint, plan.ledger) == (same.footprint, same.ledger)


def check_against_rules(plan: ConvPlan, **settings: Any) -> None:
    """Check that a plan equals the plan of the second implementation, `apply_rules`."""
    grid = plan.grid
    rule = apply_rules(plan.conv, str(plan.layout), (grid.rows, grid.cols), **settings)
    sharding, blocks = plan.sharding, plan.blocks
    assert (sharding.rows, sharding.columns, sharding.out_columns) == (rule.cores_nhw, rule.cores_in, rule.cores_out)
    assert (sharding.in_height, sharding.in_width) == rule.in_shard
    assert (sharding.out_height, sharding.out_width) == rule.out_shard
    assert (blocks.act_height, blocks.act_width, blocks.out_width) == (*rule.act_block, rule.out_width)
    assert (blocks.height_blocks, blocks.inner_blocks) == rule.blocks
    assert (blocks.sub_height, blocks.sub_width) == rule.sub_block
    parts = plan.footprint.get_buffer_sizes()
    if plan.halo is None:  # a matmul reads its input shard in place
        wide = {"bfloat16": 2048, "bfloat8_b": 1088, "float32": 4096}[plan.input_dtype.name]
        tiles = sharding.in_height // 32 * (sharding.in_width // 32)
        rule.buffers["haloed input"] = tiles * wide
    else:
        assert plan.halo.sizes == tuple(last - first + 1 for first, last in rule.spans)
        if plan.conv.input_sticks < MAX_COMPARED_STICKS:
            assert plan.halo_runs is not None
            assert [(span.start, span.stop - 1) for span in plan.halo_runs.ranges] == rule.spans
    expected = {name: size for name, size in rule.buffers.items() if size}
    assert {name: size for name, size in parts.items() if name != "input"} == expected
    assert plan.footprint.total == sum(expected.values())


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("chip", CHIPS)
def test_plans_of_real_networks_follow_the_rules(name: str, chip: str) -> None:
    for batch, conv, layout in itertools.product((1, 8, 16, 20), list_shapes(name), ShardLayout):
        check_against_rules(plan_one(replace(conv, batch=batch), CHIPS[chip], layout=layout))


@pytest.mark.parametrize("layout", ShardLayout)
@pytest.mark.parametrize("dtype", ["float32", "bfloat8_b"])
def test_plans_with_formats_and_buffers_follow_the_rules(layout: ShardLayout, dtype: str) -> None:
    config = Conv2dConfig(
        dtype=DTYPES[dtype],
        weights_dtype=DTYPES[dtype],
        enable_act_double_buffer=True,
        enable_weights_double_buffer=True,
        act_block_h_override=64,
    )
    for conv in list_shapes("resnet50"):
        plan = plan_one(
            replace(conv, batch=8), N150, config, ComputeConfig(fp32_dest_acc_en=True), layout=layout, bias=True
        )
        check_against_rules(
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
def test_plans_of_random_shapes_follow_the_rules(
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
    input_layout = Layout.ROW_MAJOR if row_major else Layout.TILE
    plan = plan_one(conv, machine, config, layout=layout, input_layout=input_layout)
    if plan.halo is None and row_major:
        return  # the chip has no matmul of row-major input
    check_against_rules(
        plan, override=override, full_inner=full_inner, transposed=transposed, row_major_input=row_major
    )


@pytest.mark.parametrize("name", NETWORKS)
def test_default_rule_takes_least_memory(name: str) -> None:
    for batch, shape in itertools.product((1, 16), list_shapes(name)):
        conv, totals = replace(shape, batch=batch), {}
        for layout in ShardLayout:
            rule = apply_rules(conv, str(layout), (8, 8))
            if layout == ShardLayout.BLOCK and rule.cores_nhw * max(rule.cores_in, rule.cores_out) < 8:
                continue
            if not (layout == ShardLayout.WIDTH and conv.is_matmul):
                totals[layout] = plan_one(conv, N150, layout=layout).footprint.total
        plan = plan_default_layout(conv, ConvSetup(machine=N150))
        assert plan.footprint.total == min(totals.values())
        assert plan.layout in totals


def count_slices_up(conv: Convolution, setup: ConvSetup, layout: ShardLayout) -> tuple[SliceAxis, int] | None:
    """Return the axis and the smallest number of slices that fit, or None, by trying 1, 2, 3, …"""
    freed = replace(setup, config=replace(setup.config, deallocate_activation=True))
    guessed = choose_slice_axis(conv.height, conv.width)
    for axis in (guessed, *(candidate for candidate in SliceAxis if candidate is not guessed)):
        size, unit = (conv.output_size[0], 1) if axis is SliceAxis.HEIGHT else (conv.output_size[1], 32)
        for count in range(1, -(-size // unit) + 1):
            parts = [slice_convolution(conv, axis, output)[0] for output in split_into_slices(size, count, unit)]
            if all(plan_layout(part, layout, freed).fits for part in set(parts)):
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
    setup = ConvSetup(machine=machine, config=Conv2dConfig(act_block_h_override=override))
    expected = count_slices_up(conv, setup, layout)
    if expected is None:
        with pytest.raises(TesseraError, match="no slice"):
            plan_sliced(conv, setup, layout=layout)
        return
    plan = plan_sliced(conv, setup, layout=layout)
    assert max(1, len(plan.slices)) == expected[1]
    if plan.slices and expected[1] > 1:
        assert plan.slices[0].axis is expected[0]
