"""Tests of the memory of each buffer of a core, compared with numbers computed by hand from the chip's rules."""

from __future__ import annotations

from dataclasses import replace

from tessera.coregrid.config import ComputeConfig, Conv2dConfig, ShardLayout
from tessera.coregrid.formats import Layout, bfloat8_b, float32
from tessera.coregrid.planning.plan import plan_one
from tessera.machine import load_machine
from tests.coregrid.planning.shapes import square

N150 = load_machine("wormhole-n150")
CONV = square(8, 56, 64, 64)


def test_height_sharded_memory_in_one_block() -> None:
    """61 cores have 13 tiles of sticks each; a block is 6 tiles wide (one kernel row), the output 2 tiles."""
    plan = plan_one(CONV, N150, layout=ShardLayout.HEIGHT, bias=True)
    memory = plan.footprint
    assert memory.weights == 2 * 6 * 2048
    assert memory.act == memory.act_tilized == 13 * 6 * 2048
    assert memory.act_row_major == memory.partials == 0  # partial sums are in the output buffer
    assert memory.bias == 2 * 2048
    assert memory.scratch == 64
    assert memory.output == 13 * 2 * 2048
    assert plan.halo is not None
    assert memory.halo == plan.halo.largest * 64 * 2
    assert memory.input == 416 * 64 * 2
    assert memory.total == memory.buffers + memory.output + memory.halo
    assert plan.high_water == memory.total + memory.input


def test_height_sharded_memory_in_several_blocks_holds_all_weights() -> None:
    """With blocks of two tiles, 56 cores have 14 tiles (8 image lines) each, and read ten padded lines of 58 sticks."""
    plan = plan_one(CONV, N150, Conv2dConfig(act_block_h_override=64), layout=ShardLayout.HEIGHT, bias=True)
    memory = plan.footprint
    assert plan.sharding.cores == 56
    assert memory.weights == 3 * 2 * 6 * 2048
    assert memory.act == memory.act_tilized == 2 * 6 * 2048
    assert memory.output == 14 * 2 * 2048
    assert memory.halo == 10 * 58 * 64 * 2
    assert memory.total == 73728 + 2 * 24576 + 4096 + 64 + 57344 + 74240


def test_smaller_blocks_can_need_more_memory() -> None:
    """Check that two blocks of one tile need more memory than one block of two tiles, because all weights are kept."""
    conv = square(16, 7, 512, 512)
    grid = ShardLayout.HEIGHT
    whole = plan_one(conv, N150, Conv2dConfig(), layout=grid).footprint
    halved = plan_one(conv, N150, Conv2dConfig(act_block_h_override=32), layout=grid).footprint
    assert whole.weights == 16 * 48 * 2048
    few = plan_one(square(64, 7, 512, 512), N150, layout=grid)
    cut = plan_one(square(64, 7, 512, 512), N150, Conv2dConfig(act_block_h_override=32), layout=grid)
    assert few.blocks.act_height == 2
    assert cut.footprint.weights == 3 * few.footprint.weights
    assert cut.footprint.total > few.footprint.total
    assert halved.weights == whole.weights  # a shard of one tile cannot be split


def test_double_buffers_double_their_memory() -> None:
    config = Conv2dConfig(enable_act_double_buffer=True, enable_weights_double_buffer=True)
    single = plan_one(CONV, N150, layout=ShardLayout.HEIGHT).footprint
    two = plan_one(CONV, N150, config, layout=ShardLayout.HEIGHT).footprint
    assert (two.act, two.weights) == (2 * single.act, 2 * single.weights)
    assert two.act_tilized == single.act_tilized
    cut = replace(config, act_block_h_override=64)
    assert (
        plan_one(CONV, N150, cut, layout=ShardLayout.HEIGHT).footprint.weights == 3 * 2 * 6 * 2048
    )  # all weights, stored once


def test_block_sharded_memory() -> None:
    """8 x 8 cores have 13 tiles of sticks and 32 channels each; one kernel row of a window is 3 tiles wide."""
    memory = plan_one(square(16, 14, 256, 256), N150, layout=ShardLayout.BLOCK, bias=True).footprint
    assert memory.weights == 1 * 3 * 2048
    assert memory.act == memory.act_tilized == 13 * 3 * 2048
    assert memory.act_row_major == 0
    assert memory.bias == 2048
    assert memory.output == 13 * 1 * 2048


def test_block_sharding_with_another_format_adds_a_row_major_block() -> None:
    config = Conv2dConfig(dtype=bfloat8_b, weights_dtype=bfloat8_b)
    memory = plan_one(square(16, 14, 256, 256), N150, config, layout=ShardLayout.BLOCK).footprint
    assert memory.act_row_major == 13 * 3 * 2048  # sticks are bfloat16, never a block format
    assert memory.act == memory.act_tilized == 13 * 3 * 1088
    assert memory.weights == 3 * 1088
    assert memory.output == 13 * 1088


def test_width_sharded_memory() -> None:
    """16 cores have 32 channels each; a window is 9 tiles wide, and the 49 sticks are two tiles high."""
    memory = plan_one(square(1, 7, 512, 512), N150, layout=ShardLayout.WIDTH).footprint
    assert memory.act_row_major == 2 * 9 * 2048
    assert memory.act == memory.act_tilized == 2 * 9 * 2048
    assert memory.weights == 1 * 9 * 2048
    assert memory.output == 2 * 1 * 2048
    assert memory.halo == 9 * 9 * 32 * 2


def test_partials_need_a_buffer_unless_they_share_the_output() -> None:
    def compute_partials(config: Conv2dConfig, compute: ComputeConfig) -> int:
        return plan_one(CONV, N150, config, compute, layout=ShardLayout.HEIGHT).footprint.partials

    sums = ComputeConfig(packer_l1_acc=True, fp32_dest_acc_en=True)
    assert compute_partials(Conv2dConfig(), ComputeConfig()) == 0
    assert compute_partials(Conv2dConfig(output_layout=Layout.ROW_MAJOR), ComputeConfig()) == 13 * 2 * 2048
    assert compute_partials(Conv2dConfig(), sums) == 13 * 2 * 4096
    assert compute_partials(Conv2dConfig(), ComputeConfig(packer_l1_acc=True)) == 0
    assert compute_partials(Conv2dConfig(dtype=bfloat8_b), ComputeConfig(packer_l1_acc=True)) == 13 * 2 * 2048
    assert compute_partials(Conv2dConfig(dtype=float32), ComputeConfig(packer_l1_acc=True)) == 0


def test_float32_doubles_the_memory_of_bfloat16() -> None:
    plain, wide = (
        plan_one(CONV, N150, Conv2dConfig(dtype=d, weights_dtype=d), layout=ShardLayout.HEIGHT).footprint
        for d in (Conv2dConfig().dtype, float32)
    )
    assert wide.total - 64 == 2 * (plain.total - 64)


def test_a_matmul_reads_its_shard_in_place() -> None:
    conv = square(8, 56, 64, 256, kernel=1)
    plan = plan_one(conv, N150, layout=ShardLayout.HEIGHT)
    assert conv.is_matmul
    assert plan.halo_runs is None
    assert (plan.footprint.halo, plan.footprint.input) == (416 * 64 * 2, 0)
    assert plan.high_water == plan.footprint.total


def test_deallocated_input_is_not_in_the_peak_memory() -> None:
    kept = plan_one(CONV, N150, layout=ShardLayout.HEIGHT)
    freed = plan_one(CONV, N150, Conv2dConfig(deallocate_activation=True), layout=ShardLayout.HEIGHT)
    assert kept.high_water - freed.high_water == kept.footprint.input
