"""Tests of the chip's rule for block and sub-block sizes, compared with numbers computed by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.coregrid.config import ShardLayout
from tessera.coregrid.planning.plan import plan_one
from tessera.coregrid.planning.sharding import SUB_BLOCK_SIZES, choose_blocks, choose_sub_block, shard_convolution
from tessera.errors import TesseraError
from tessera.geometry import Mesh
from tessera.machine import load_machine
from tests.coregrid.planning.shapes import square

GRID = Mesh(8, 8)


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
    blocks = choose_blocks(conv, sharding, act_block_h_override=32)  # WIDTH ignores the override
    assert (blocks.act_height, blocks.act_width, blocks.inner_blocks) == (2, 9, 16)
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
