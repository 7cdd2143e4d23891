"""Tests of the bytes that a convolution moves, compared with numbers computed by hand."""

from __future__ import annotations

from tessera.coregrid.config import Conv2dConfig, ShardLayout
from tessera.coregrid.planning.ledger import Ledger
from tessera.coregrid.planning.plan import plan_one
from tessera.geometry import Mesh
from tessera.machine import load_machine
from tests.coregrid.planning.shapes import square

N150 = load_machine("wormhole-n150")


def test_bytes_of_height_sharding() -> None:
    """Two cores have half of an 8x8 image each: 32 sticks of 32 channels, and a halo of one line of the other half."""
    plan = plan_one(square(1, 8, 32, 64), N150, layout=ShardLayout.HEIGHT, grid=Mesh(1, 2), bias=True)
    stick, weights = 32 * 2, 3 * 3 * 2 * 2048  # three kernel rows of 3 x 2 tiles
    assert plan.ledger == Ledger(
        local=(64 + 64 * 9) * stick,
        remote=2 * 8 * stick,
        multicast=weights + 2 * 2048,
        global_read=weights + 2 * 2048,
    )


def test_bytes_of_block_sharding() -> None:
    """On 2 x 2 cores, sticks are split over core rows, and 64 channels over core columns, 32 channels each."""
    plan = plan_one(square(1, 8, 64, 64), N150, layout=ShardLayout.BLOCK, grid=Mesh(2, 2))
    stick, block, weights = 32 * 2, 1 * 3 * 2048, 6 * 3 * 1 * 2 * 2048
    assert plan.blocks.inner_blocks == 6
    assert plan.ledger == Ledger(
        local=(64 + 64 * 9) * stick * 2,
        remote=2 * 8 * stick * 2,
        multicast=2 * 3 * 2 * block + weights,  # core rows x blocks per core x senders; weights to row 2
        global_read=weights,
    )


def test_block_sharding_reads_weights_once_per_height_block() -> None:
    whole = plan_one(square(4, 16, 64, 64), N150, layout=ShardLayout.BLOCK, grid=Mesh(2, 2))
    cut = plan_one(
        square(4, 16, 64, 64), N150, Conv2dConfig(act_block_h_override=128), layout=ShardLayout.BLOCK, grid=Mesh(2, 2)
    )
    assert (whole.blocks.height_blocks, cut.blocks.height_blocks) == (1, 4)
    assert cut.ledger.global_read == 4 * whole.ledger.global_read


def test_width_shares_activations_and_no_weights() -> None:
    """Two cores have 32 input and 32 output channels each, and 64 sticks; a window is 9 tiles wide."""
    plan = plan_one(square(1, 8, 64, 64), N150, layout=ShardLayout.WIDTH, grid=Mesh(1, 2))
    assert plan.ledger.remote == 0
    assert plan.ledger.multicast == 2 * 2 * 9 * 2048
    assert plan.ledger.global_read == 2 * 9 * 2 * 2048


def test_bytes_with_more_output_columns_than_input_columns() -> None:
    """One core has all input channels, and sends them to three of the four cores that compute outputs."""
    plan = plan_one(square(1, 8, 32, 128, kernel=1), N150, layout=ShardLayout.WIDTH, grid=Mesh(1, 4))
    assert (plan.sharding.columns, plan.sharding.out_columns) == (1, 4)
    assert plan.ledger == Ledger(multicast=3 * 2 * 1 * 2048, global_read=4 * 2048)


def test_exact_halos_of_a_sparse_window_move_a_quarter() -> None:
    conv = square(1, 16, 32, 32, kernel=1, stride=2)
    span, exact = (
        plan_one(conv, N150, Conv2dConfig(halo_mode=mode), layout=ShardLayout.HEIGHT, grid=Mesh(1, 2))
        for mode in ("span", "exact")
    )
    assert exact.halo is not None
    assert span.halo is not None
    assert sum(exact.halo.sizes) == 64
    assert sum(span.halo.sizes) > 2 * 64
    assert exact.high_water < span.high_water
