"""Tests of the chip's sharding rule: numbers computed by hand, and properties that hold for every shape."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.coregrid.config import ShardLayout
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.planning.sharding import choose_core_count, round_up, shard_convolution
from tessera.geometry import Mesh
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
    narrow = shard_convolution(square(16, 14, 96, 2048, kernel=1), ShardLayout.BLOCK, GRID)
    assert (narrow.columns, narrow.out_columns, narrow.in_width, narrow.out_width) == (3, 8, 32, 256)


def test_block_without_transpose_shards_splits_sticks_over_columns() -> None:
    conv, grid = square(16, 14, 256, 256), Mesh(4, 8)
    by_rows = shard_convolution(conv, ShardLayout.BLOCK, grid)
    by_columns = shard_convolution(conv, ShardLayout.BLOCK, grid, transpose_shards=False)
    assert (by_rows.rows, by_rows.columns) == (4, 8)
    assert (by_columns.rows, by_columns.columns) == (8, 4)


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
