"""Blocks and sub-blocks by the chip's rule, reckoned by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.coregrid.convolution import Convolution
from tessera.coregrid.formats import DataType, bfloat16, float32
from tessera.coregrid.planning.blocks import SUB_BLOCKS, blocks_of, output_block, sub_block
from tessera.coregrid.planning.plan import plan_one
from tessera.coregrid.planning.sharding import ShardLayout, round_up, sharding_of
from tessera.errors import TesseraError
from tessera.geometry import Mesh
from tessera.machine import load_machine
from tests.coregrid.planning.shapes import convolutions, square

GRID = Mesh(8, 8)


def test_height_takes_a_row_of_the_kernel_at_a_time() -> None:
    conv = square(8, 56, 64, 64)
    found = blocks_of(conv, sharding_of(conv, ShardLayout.HEIGHT, GRID))
    assert (found.act_height, found.act_width, found.out_width) == (13, 6, 2)
    assert (found.height_blocks, found.inner_blocks) == (1, 3)
    assert (found.sub_height, found.sub_width) == (1, 2)  # 13 is prime


def test_the_width_of_a_block_is_whole_tiles() -> None:
    stem = square(1, 224, 3, 64, kernel=7, stride=2)
    found = blocks_of(stem, sharding_of(stem, ShardLayout.HEIGHT, GRID, in_alignment=8))
    assert (found.act_width, found.inner_blocks) == (2, 7)  # 8 channels x 7 = 56, two tiles


@pytest.mark.parametrize(
    ("override", "height", "count"), [(64, 2, 7), (224, 7, 2), (448, 14, 1), (96, 2, 7), (9600, 14, 1)]
)
def test_an_override_falls_to_a_divisor(override: int, height: int, count: int) -> None:
    conv = square(8, 56, 64, 64)
    sharding = sharding_of(conv, ShardLayout.HEIGHT, GRID, multiple=2)
    assert sharding.out_height == 14 * 32
    found = blocks_of(conv, sharding, act_block_h_override=override)
    assert (found.act_height, found.height_blocks) == (height, count)


def test_an_override_is_a_multiple_of_a_tile() -> None:
    conv = square(8, 56, 64, 64)
    with pytest.raises(TesseraError, match="multiple of 32"):
        blocks_of(conv, sharding_of(conv, ShardLayout.HEIGHT, GRID), act_block_h_override=40)


def test_block_goes_through_the_columns_of_cores() -> None:
    conv = square(16, 14, 256, 256)
    sharding = sharding_of(conv, ShardLayout.BLOCK, GRID)
    found = blocks_of(conv, sharding)
    assert (found.act_height, found.act_width, found.out_width) == (13, 3, 1)  # 32 channels of a core x 3
    assert found.inner_blocks == 8 * 3
    whole = blocks_of(conv, sharding, full_inner=True)
    assert (whole.act_width, whole.inner_blocks) == (9, 8)


def test_width_divides_the_whole_window() -> None:
    conv = square(1, 7, 512, 512)
    sharding = sharding_of(conv, ShardLayout.WIDTH, GRID)
    found = blocks_of(conv, sharding, act_block_h_override=32)  # which WIDTH does not read
    assert (found.act_height, found.act_width, found.inner_blocks) == (2, 9, 16)
    thirds = blocks_of(conv, sharding, act_block_w_div=3)
    assert (thirds.act_width, thirds.inner_blocks) == (3, 48)
    with pytest.raises(TesseraError, match="allowed: 1, 3, 9"):
        blocks_of(conv, sharding, act_block_w_div=2)


@pytest.mark.parametrize(
    ("height", "width", "most", "found"),
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
        (4, 8, 8, (1, 8)),  # (2, 4) is neither as wide as the block nor a row
        (1, 1, 4, (1, 1)),
        (11, 11, 8, (1, 1)),
    ],
)
def test_sub_blocks(height: int, width: int, most: int, found: tuple[int, int]) -> None:
    assert sub_block(height, width, most) == found


@given(st.integers(1, 60), st.integers(1, 60), st.sampled_from([4, 8]))
def test_it_is_the_first_of_the_list_that_may_be(height: int, width: int, most: int) -> None:
    def may(rows: int, columns: int) -> bool:
        divides = height % rows == 0 and width % columns == 0
        return rows * columns <= most and divides and (columns == width or rows == 1)

    assert sub_block(height, width, most) == next(pair for pair in SUB_BLOCKS if may(*pair))


def test_32_bit_accumulation_halves_the_registers() -> None:
    conv = square(4, 56, 64, 128)
    sharding = sharding_of(conv, ShardLayout.HEIGHT, GRID)
    assert sharding.out_height // 32 == 7
    narrow, wide = (blocks_of(conv, sharding, fp32_accumulation=on) for on in (True, False))
    assert (wide.sub_height, wide.sub_width) == (1, 4)
    assert (narrow.sub_height, narrow.sub_width) == (1, 4)
    even = square(4, 48, 64, 128)
    shards = sharding_of(even, ShardLayout.HEIGHT, Mesh(1, 2))
    assert (blocks_of(even, shards).sub_height, blocks_of(even, shards, fp32_accumulation=True).sub_height) == (2, 1)


@settings(max_examples=100, deadline=None)
@given(convolutions(), st.integers(10_000, 1_500_000), st.sampled_from([bfloat16, float32]))
def test_the_largest_block_that_one_core_makes_alone(conv: Convolution, free: int, dtype: DataType) -> None:
    inner, size = conv.kernel[0] * conv.kernel[1] * conv.in_channels, dtype.torch.itemsize

    def fits(height: int, width: int) -> bool:
        return (height * width + inner * (height + width)) * size < free

    heights = range(32, round_up(conv.outputs, 32) + 1, 32)
    widths = range(32, round_up(conv.out_channels, 32) + 1, 32)
    every = [(height, width) for height in heights for width in widths if fits(height, width)]
    if not every:
        with pytest.raises(TesseraError, match="not even a tile"):
            output_block(conv, free, dtype)
        return
    found = output_block(conv, free, dtype)
    assert found in every
    assert found[0] * found[1] == max(height * width for height, width in every)


@pytest.mark.parametrize("layout", list(ShardLayout))
def test_what_fits_a_plan_satisfies_the_inequality_of_its_blocks(layout: ShardLayout) -> None:
    """With the inner dim cut too: an output block, and the activations and weights of one inner block, at once."""
    machine = load_machine("wormhole-n150")
    for conv in (square(8, 56, 64, 64), square(16, 14, 256, 256), square(1, 7, 512, 512)):
        plan = plan_one(conv, machine, layout=layout)
        height, width, inner = (
            32 * tiles for tiles in (plan.blocks.act_height, plan.blocks.out_width, plan.blocks.act_width)
        )
        taken = (height * width + inner * (height + width)) * 2
        assert taken < plan.footprint.total
        assert not plan.fits or taken < machine.local_memory
