"""Which cores have what, by the chip's rule: numbers reckoned by hand, and what holds for every shape."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.coregrid.convolution import Convolution
from tessera.coregrid.planning.sharding import ShardLayout, cores_for, round_up, sharding_of
from tessera.geometry import Mesh
from tests.coregrid.planning.shapes import convolutions, square

GRID = Mesh(8, 8)


@pytest.mark.parametrize(
    ("tiles", "most", "multiple", "cores"),
    [
        (784, 64, 1, 61),  # 61 x 13 = 793, 9 too many; 62 x 13 would leave the last without any
        (98, 64, 1, 49),
        (25, 8, 1, 7),
        (7, 64, 1, 7),
        (784, 64, 2, 56),  # two at a time: 56 x 14
        (1, 64, 1, 1),
        (64, 64, 1, 64),
    ],
)
def test_as_many_cores_as_all_get_something(tiles: int, most: int, multiple: int, cores: int) -> None:
    assert cores_for(tiles, most, multiple) == cores


@given(st.integers(1, 2000), st.integers(1, 130), st.integers(1, 8))
def test_the_largest_number_that_the_rule_allows(tiles: int, most: int, multiple: int) -> None:
    def allowed(cores: int) -> bool:
        dealt = round_up(tiles, cores * multiple)
        return dealt - tiles < dealt / cores

    found = cores_for(tiles, most, multiple)
    assert allowed(found) or found == 1
    assert not any(allowed(more) for more in range(found + 1, most + 1))


def test_height() -> None:
    found = sharding_of(square(8, 56, 64, 64), ShardLayout.HEIGHT, GRID)
    assert (found.rows, found.columns, found.out_columns, found.cores) == (61, 1, 1, 61)
    assert (found.in_height, found.out_height, found.in_width, found.out_width) == (416, 416, 64, 64)
    assert [len(run) for run in found.outputs(25088)] == [416] * 60 + [128]


def test_a_block_of_the_height_decides_about_the_cores_not_about_their_shards() -> None:
    found = sharding_of(square(8, 56, 64, 64), ShardLayout.HEIGHT, GRID, multiple=4)
    assert found.rows == 49  # 784 tiles, four at a time: 49 x 16
    assert found.out_height == 512
    # 5 tiles, two at a time: three cores would get 2, 2 and 1, so their shards are 2 high, not 2 blocks
    few = sharding_of(square(1, 12, 32, 32), ShardLayout.HEIGHT, GRID, multiple=2)
    assert (few.rows, few.out_height) == (3, 64)


def test_block_cuts_sticks_over_rows_and_channels_over_columns() -> None:
    found = sharding_of(square(16, 14, 1024, 256, kernel=1), ShardLayout.BLOCK, GRID)
    assert (found.rows, found.columns, found.out_columns) == (8, 8, 8)  # 98 tiles: 8 x 13, 104
    assert (found.out_height, found.in_width, found.out_width) == (416, 128, 32)
    narrow = sharding_of(square(16, 14, 96, 2048, kernel=1), ShardLayout.BLOCK, GRID)
    assert (narrow.columns, narrow.out_columns, narrow.in_width, narrow.out_width) == (3, 8, 32, 256)


def test_block_the_other_way_round() -> None:
    conv, grid = square(16, 14, 256, 256), Mesh(4, 8)
    by_rows = sharding_of(conv, ShardLayout.BLOCK, grid)
    by_columns = sharding_of(conv, ShardLayout.BLOCK, grid, transpose_shards=False)
    assert (by_rows.rows, by_rows.columns) == (4, 8)
    assert (by_columns.rows, by_columns.columns) == (8, 4)


def test_width_cuts_channels_alone() -> None:
    found = sharding_of(square(1, 7, 512, 2048), ShardLayout.WIDTH, GRID)
    assert (found.rows, found.columns, found.out_columns) == (1, 16, 64)
    assert (found.in_width, found.out_width, found.out_height) == (32, 32, 64)


def test_channels_are_aligned_to_eight_or_to_a_tile() -> None:
    stem = square(1, 224, 3, 64, kernel=7, stride=2)
    assert sharding_of(stem, ShardLayout.HEIGHT, GRID).in_width == 32
    assert sharding_of(stem, ShardLayout.HEIGHT, GRID, in_alignment=8).in_width == 8


def test_a_whole_grid_may_have_cores_without_anything() -> None:
    found = sharding_of(square(1, 7, 64, 64), ShardLayout.HEIGHT, GRID, whole_grid=True)
    assert found.rows == 64
    assert [len(run) for run in found.outputs(49)] == [32, 17] + [0] * 62


@given(convolutions(), st.sampled_from(list(ShardLayout)), st.integers(1, 9), st.integers(1, 9), st.booleans())
def test_every_stick_and_channel_is_somewhere_once(
    conv: Convolution, layout: ShardLayout, down: int, across: int, transposed: bool
) -> None:
    found = sharding_of(conv, layout, Mesh(down, across), transpose_shards=transposed)
    for runs, sticks in ((found.inputs(conv.inputs), conv.inputs), (found.outputs(conv.outputs), conv.outputs)):
        assert sum(len(run) for run in runs) == sticks
        assert all(a.stop == b.start for a, b in itertools.pairwise(runs))
    assert found.cores <= down * across
    assert found.columns * found.in_width >= conv.in_channels
    assert found.out_columns * found.out_width >= conv.out_channels
    assert found.out_height % 32 == 0
    assert found.out_width % 32 == 0
    assert all(len(run) for run in found.outputs(conv.outputs))  # no core is idle
