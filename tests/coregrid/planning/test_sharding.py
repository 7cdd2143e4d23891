"""Tests of the chip's rules for shards, blocks and sub-blocks: numbers computed by hand, and general properties."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.coregrid.config import ShardLayout
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.planning.plan import plan_one
from tessera.coregrid.planning.sharding import (
    SUB_BLOCK_SIZES,
    choose_blocks,
    choose_core_count,
    choose_sub_block,
    round_up,
    shard_convolution,
)
from tessera.errors import TesseraError
from tessera.geometry import Mesh
from tessera.machine import load_machine
from tests.coregrid.planning.shapes import convolutions, square

GRID = Mesh(8, 8)


@pytest.mark.parametrize(
    ("tiles", "most", "multiple", "cores"),
    [
        (784, 64, 1, 61),  # 61 x 13 = 793 tiles, 9 of padding; with 62 cores the last would be idle
        (98, 64, 1, 49),
        (25, 8, 1, 7),
        (7, 64, 1, 7),
        (784, 64, 2, 56),  # multiples of two tiles: 56 x 14
        (1, 64, 1, 1),
        (64, 64, 1, 64),
    ],
)
def test_all_counted_cores_receive_tiles(tiles: int, most: int, multiple: int, cores: int) -> None:
    assert choose_core_count(tiles, most, multiple) == cores


@given(st.integers(1, 2000), st.integers(1, 130), st.integers(1, 8))
def test_core_count_is_the_largest_allowed_number(tiles: int, most: int, multiple: int) -> None:
    def is_allowed(cores: int) -> bool:
        dealt = round_up(tiles, cores * multiple)
        return dealt - tiles < dealt / cores

    result = choose_core_count(tiles, most, multiple)
    assert is_allowed(result) or result == 1
    assert not any(is_allowed(more) for more in range(result + 1, most + 1))


def test_height_splits_only_sticks() -> None:
    sharding = shard_convolution(square(8, 56, 64, 64), ShardLayout.HEIGHT, GRID)
    assert (sharding.rows, sharding.columns, sharding.out_columns, sharding.cores) == (61, 1, 1, 61)
    assert (sharding.in_height, sharding.out_height, sharding.in_width, sharding.out_width) == (416, 416, 64, 64)
    assert [len(run) for run in sharding.split_outputs(25088)] == [416] * 60 + [128]


def test_block_height_affects_cores_not_shard_height() -> None:
    sharding = shard_convolution(square(8, 56, 64, 64), ShardLayout.HEIGHT, GRID, multiple=4)
    assert sharding.rows == 49  # 784 tiles in multiples of four: 49 x 16
    assert sharding.out_height == 512
    # 5 tiles in blocks of two: three cores get 2, 2 and 1 tiles, so a shard is 2 tiles high
    few = shard_convolution(square(1, 12, 32, 32), ShardLayout.HEIGHT, GRID, multiple=2)
    assert (few.rows, few.out_height) == (3, 64)


def test_block_splits_sticks_over_rows_and_channels_over_columns() -> None:
    sharding = shard_convolution(square(16, 14, 1024, 256, kernel=1), ShardLayout.BLOCK, GRID)
    assert (sharding.rows, sharding.columns, sharding.out_columns) == (8, 8, 8)  # 98 tiles, 13 per core row
    assert (sharding.out_height, sharding.in_width, sharding.out_width) == (416, 128, 32)
    narrow = shard_convolution(square(16, 14, 96, 2048), ShardLayout.BLOCK, GRID)
    assert (narrow.columns, narrow.out_columns, narrow.in_width, narrow.out_width) == (3, 8, 32, 256)


def test_block_with_transpose_shards_splits_sticks_over_columns() -> None:
    conv, grid = square(16, 14, 256, 256), Mesh(4, 8)
    by_rows = shard_convolution(conv, ShardLayout.BLOCK, grid)
    by_columns = shard_convolution(conv, ShardLayout.BLOCK, grid, transpose_shards=True)
    assert (by_rows.rows, by_rows.columns) == (4, 8)
    assert (by_columns.rows, by_columns.columns) == (8, 4)


def test_a_matmul_in_blocks_has_its_output_on_the_cores_of_its_input() -> None:
    assert shard_convolution(square(16, 14, 96, 2048, kernel=1), ShardLayout.BLOCK, GRID).columns == 1
    sharding = shard_convolution(square(16, 14, 192, 1024, kernel=1), ShardLayout.BLOCK, GRID)
    assert (sharding.columns, sharding.out_columns, sharding.in_width, sharding.out_width) == (2, 2, 96, 512)


def test_row_major_blocks_align_channels_to_eight() -> None:
    sharding = shard_convolution(square(1, 28, 40, 64), ShardLayout.BLOCK, GRID, in_alignment=8)
    assert (sharding.columns, sharding.in_width) == (5, 8)


def test_width_splits_only_channels() -> None:
    sharding = shard_convolution(square(1, 7, 512, 2048), ShardLayout.WIDTH, GRID)
    assert (sharding.rows, sharding.columns, sharding.out_columns) == (1, 16, 64)
    assert (sharding.in_width, sharding.out_width, sharding.out_height) == (32, 32, 64)


def test_channels_are_aligned_to_eight_or_to_a_tile() -> None:
    stem = square(1, 224, 3, 64, kernel=7, stride=2)
    assert shard_convolution(stem, ShardLayout.HEIGHT, GRID).in_width == 32
    assert shard_convolution(stem, ShardLayout.HEIGHT, GRID, in_alignment=8).in_width == 8


def test_whole_grid_may_have_idle_cores() -> None:
    sharding = shard_convolution(square(1, 7, 64, 64), ShardLayout.HEIGHT, GRID, whole_grid=True)
    assert sharding.rows == 64
    assert [len(run) for run in sharding.split_outputs(49)] == [32, 17] + [0] * 62


@given(convolutions(), st.sampled_from(list(ShardLayout)), st.integers(1, 9), st.integers(1, 9), st.booleans())
def test_every_stick_and_channel_is_on_one_core(
    conv: Convolution, layout: ShardLayout, down: int, across: int, transposed: bool
) -> None:
    sharding = shard_convolution(conv, layout, Mesh(down, across), transpose_shards=transposed)
    for runs, sticks in (
        (sharding.split_inputs(conv.input_sticks), conv.input_sticks),
        (sharding.split_outputs(conv.output_sticks), conv.output_sticks),
    ):
        assert sum(len(run) for run in runs) == sticks
        assert all(a.stop == b.start for a, b in itertools.pairwise(runs))
    assert sharding.cores <= down * across
    assert sharding.columns * sharding.in_width >= conv.in_channels
    assert sharding.out_columns * sharding.out_width >= conv.out_channels
    assert sharding.out_height % 32 == 0
    assert sharding.out_width % 32 == 0
    assert all(len(run) for run in sharding.split_outputs(conv.output_sticks))  # no core is idle


def test_height_blocks_hold_one_kernel_row() -> None:
    conv = square(8, 56, 64, 64)
    sharding = choose_blocks(conv, shard_convolution(conv, ShardLayout.HEIGHT, GRID))
    assert (sharding.act_height, sharding.act_width, sharding.out_width) == (13, 6, 2)
    assert (sharding.height_blocks, sharding.inner_blocks) == (1, 3)
    assert (sharding.sub_height, sharding.sub_width) == (1, 2)  # the block height, 13, is prime


def test_the_width_of_a_block_is_whole_tiles() -> None:
    stem = square(1, 224, 3, 64, kernel=7, stride=2)
    sharding = choose_blocks(stem, shard_convolution(stem, ShardLayout.HEIGHT, GRID, in_alignment=8))
    assert (sharding.act_width, sharding.inner_blocks) == (2, 7)  # 8 channels x 7 = 56 columns: two tiles


@pytest.mark.parametrize(
    ("override", "height", "count"), [(64, 2, 7), (224, 7, 2), (448, 14, 1), (96, 2, 7), (9600, 14, 1)]
)
def test_override_is_lowered_to_a_divisor(override: int, height: int, count: int) -> None:
    conv = square(8, 56, 64, 64)
    sharding = shard_convolution(conv, ShardLayout.HEIGHT, GRID, multiple=2)
    assert sharding.out_height == 14 * 32
    blocks = choose_blocks(conv, sharding, act_block_h_override=override)
    assert (blocks.act_height, blocks.height_blocks) == (height, count)


def test_an_override_is_a_multiple_of_a_tile() -> None:
    conv = square(8, 56, 64, 64)
    with pytest.raises(TesseraError, match="multiple of 32"):
        choose_blocks(conv, shard_convolution(conv, ShardLayout.HEIGHT, GRID), act_block_h_override=40)


def test_inner_blocks_of_block_sharding_cover_all_core_columns() -> None:
    conv = square(16, 14, 256, 256)
    sharding = shard_convolution(conv, ShardLayout.BLOCK, GRID)
    blocks = choose_blocks(conv, sharding)
    assert (blocks.act_height, blocks.act_width, blocks.out_width) == (13, 3, 1)  # 32 channels per core x 3 = 3 tiles
    assert blocks.inner_blocks == 8 * 3
    whole = choose_blocks(conv, sharding, full_inner=True)
    assert (whole.act_width, whole.inner_blocks) == (9, 8)


def test_width_divides_the_whole_window() -> None:
    conv = square(1, 7, 512, 512)
    sharding = shard_convolution(conv, ShardLayout.WIDTH, GRID)
    blocks = choose_blocks(conv, sharding, act_block_h_override=32)
    assert (blocks.act_height, blocks.act_width, blocks.height_blocks, blocks.inner_blocks) == (1, 9, 2, 16)
    thirds = choose_blocks(conv, sharding, act_block_w_div=3)
    assert (thirds.act_width, thirds.inner_blocks) == (3, 48)
    with pytest.raises(TesseraError, match="allowed: 1, 3, 9"):
        choose_blocks(conv, sharding, act_block_w_div=2)


@pytest.mark.parametrize(
    ("height", "width", "most", "expected"),
    [
        (4, 4, 8, (2, 4)),
        (4, 2, 8, (4, 2)),
        (7, 2, 8, (1, 2)),
        (3, 8, 8, (1, 8)),
        (8, 1, 8, (8, 1)),
        (6, 3, 8, (2, 3)),
        (4, 4, 4, (1, 4)),
        (4, 2, 4, (2, 2)),
        (13, 6, 8, (1, 6)),
        (4, 8, 8, (1, 8)),  # not (2, 4): sub-blocks of several rows must be as wide as the block
        (1, 1, 4, (1, 1)),
        (11, 11, 8, (1, 1)),
    ],
)
def test_sub_block_sizes(height: int, width: int, most: int, expected: tuple[int, int]) -> None:
    assert choose_sub_block(height, width, most) == expected


@given(st.integers(1, 60), st.integers(1, 60), st.sampled_from([4, 8]))
def test_first_valid_sub_block_is_chosen(height: int, width: int, most: int) -> None:
    def is_allowed(rows: int, columns: int) -> bool:
        divides = height % rows == 0 and width % columns == 0
        return rows * columns <= most and divides and (columns == width or rows == 1)

    assert choose_sub_block(height, width, most) == next(pair for pair in SUB_BLOCK_SIZES if is_allowed(*pair))


def test_32_bit_accumulation_halves_the_registers() -> None:
    conv = square(4, 56, 64, 128)
    sharding = shard_convolution(conv, ShardLayout.HEIGHT, GRID)
    assert sharding.out_height // 32 == 7
    narrow, wide = (choose_blocks(conv, sharding, fp32_accumulation=on) for on in (True, False))
    assert (wide.sub_height, wide.sub_width) == (1, 4)
    assert (narrow.sub_height, narrow.sub_width) == (1, 4)
    even = square(4, 48, 64, 128)
    shards = shard_convolution(even, ShardLayout.HEIGHT, Mesh(1, 2))
    assert (choose_blocks(even, shards).sub_height, choose_blocks(even, shards, fp32_accumulation=True).sub_height) == (
        2,
        1,
    )


@pytest.mark.parametrize("layout", list(ShardLayout))
def test_fitting_plans_satisfy_the_block_inequality(layout: ShardLayout) -> None:
    """Check that an output block and the activations and weights of one inner block fit in memory together."""
    machine = load_machine("wormhole-n150")
    for conv in (square(8, 56, 64, 64), square(16, 14, 256, 256), square(1, 7, 512, 512)):
        plan = plan_one(conv, machine, layout=layout)
        height, width, inner = (
            32 * tiles for tiles in (plan.blocks.act_height, plan.blocks.out_width, plan.blocks.act_width)
        )
        required = (height * width + inner * (height + width)) * 2
        assert required < plan.footprint.total
        assert not plan.fits or required < machine.local_memory
