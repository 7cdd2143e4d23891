"""The bytes that a convolution moves, reckoned by hand."""

from __future__ import annotations

from tessera.coregrid.config import Conv2dConfig
from tessera.coregrid.planning.ledger import Ledger
from tessera.coregrid.planning.plan import plan_one
from tessera.coregrid.planning.sharding import ShardLayout
from tessera.geometry import Mesh
from tessera.machine import load_machine
from tests.coregrid.planning.shapes import square

N150 = load_machine("wormhole-n150")


def test_height() -> None:
    """Two cores with half of an 8x8 image each: 32 sticks of 32 channels, and one line of the other's."""
    found = plan_one(square(1, 8, 32, 64), N150, layout=ShardLayout.HEIGHT, grid=Mesh(1, 2), bias=True)
    stick, weights = 32 * 2, 3 * 3 * 2 * 2048  # three rows of the kernel, 3 tiles high, 2 wide
    assert found.ledger == Ledger(
        local=(64 + 64 * 9) * stick,
        remote=2 * 8 * stick,
        multicast=weights + 2 * 2048,
        global_read=weights + 2 * 2048,
    )


def test_block() -> None:
    """2 x 2 cores: sticks over the rows, 64 channels over the columns, 32 each."""
    found = plan_one(square(1, 8, 64, 64), N150, layout=ShardLayout.BLOCK, grid=Mesh(2, 2))
    stick, block, weights = 32 * 2, 1 * 3 * 2048, 6 * 3 * 1 * 2 * 2048
    assert found.blocks.inner_blocks == 6
    assert found.ledger == Ledger(
        local=(64 + 64 * 9) * stick * 2,
        remote=2 * 8 * stick * 2,
        multicast=2 * 3 * 2 * block + weights,  # rows x own blocks x both ways; the weights to the second row
        global_read=weights,
    )


def test_block_reads_its_weights_for_every_block_of_the_height() -> None:
    whole = plan_one(square(4, 16, 64, 64), N150, layout=ShardLayout.BLOCK, grid=Mesh(2, 2))
    cut = plan_one(
        square(4, 16, 64, 64), N150, Conv2dConfig(act_block_h_override=128), layout=ShardLayout.BLOCK, grid=Mesh(2, 2)
    )
    assert (whole.blocks.height_blocks, cut.blocks.height_blocks) == (1, 4)
    assert cut.ledger.global_read == 4 * whole.ledger.global_read


def test_width_shares_activations_and_no_weights() -> None:
    """Two cores of 32 channels in, two of 32 out; 64 sticks, 9 tiles of window each."""
    found = plan_one(square(1, 8, 64, 64), N150, layout=ShardLayout.WIDTH, grid=Mesh(1, 2))
    assert found.ledger.remote == 0
    assert found.ledger.multicast == 2 * 2 * 9 * 2048
    assert found.ledger.global_read == 2 * 9 * 2 * 2048


def test_more_columns_than_have_input() -> None:
    """Channels of one core go to four that make output, three of them others."""
    found = plan_one(square(1, 8, 32, 128, kernel=1), N150, layout=ShardLayout.WIDTH, grid=Mesh(1, 4))
    assert (found.sharding.columns, found.sharding.out_columns) == (1, 4)
    assert found.ledger == Ledger(multicast=3 * 2 * 1 * 2048, global_read=4 * 2048)


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
