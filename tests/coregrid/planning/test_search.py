"""The search: the fastest that fits, and the config that makes it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tessera.coregrid.config import Conv2dConfig, SliceConfig
from tessera.coregrid.planning.plan import Setup, plan_one
from tessera.coregrid.planning.search import plan_conv2d
from tessera.coregrid.planning.sharding import ShardLayout
from tessera.coregrid.planning.slicing import plan_sliced
from tessera.errors import TesseraError
from tessera.geometry import Mesh
from tessera.machine import load_machine
from tests.coregrid.planning.shapes import square

N150 = load_machine("wormhole-n150")


def test_the_fastest_that_fits_comes_first() -> None:
    found = plan_conv2d(square(8, 56, 64, 64), N150)
    fitting = [candidate for candidate in found.candidates if candidate.fits]
    assert found.best is fitting[0]
    assert found.best.seconds == min(candidate.seconds for candidate in fitting)
    assert found.best.seconds <= found.auto.seconds
    assert {candidate.plan.layout for candidate in found.candidates} == set(ShardLayout)


def test_a_candidates_config_makes_its_plan_again() -> None:
    conv = square(16, 14, 256, 256)
    for candidate in plan_conv2d(conv, N150).candidates:
        again = plan_one(conv, N150, candidate.plan.config)
        assert (again.sharding, again.blocks, again.footprint) == (
            candidate.plan.sharding,
            candidate.plan.blocks,
            candidate.plan.footprint,
        )


def test_what_is_set_stays() -> None:
    config = Conv2dConfig(shard_layout=ShardLayout.BLOCK, act_block_h_override=64, enable_act_double_buffer=True)
    found = plan_conv2d(square(16, 14, 256, 256), N150, config, grid=Mesh(4, 8))
    for candidate in found.candidates:
        assert candidate.plan.layout == ShardLayout.BLOCK
        assert candidate.plan.grid == Mesh(4, 8)
        assert candidate.plan.config.act_block_h_override == 64
        assert candidate.plan.config.enable_act_double_buffer


def test_it_explains_what_does_not_fit() -> None:
    lines = plan_conv2d(square(8, 112, 64, 64), N150).explain()
    assert "us" in lines[0]
    assert lines[1].startswith("the chip's own choice is ")
    assert any(line.startswith("HEIGHT does not fit: needs ") and " saves " in line for line in lines[2:])


def test_slices_when_nothing_else_fits() -> None:
    found = plan_conv2d(square(4, 512, 64, 64), N150)
    assert found.best.plan.slices
    assert found.best.fits
    assert "slices of the" in str(found.best)
    asked = plan_conv2d(square(1, 56, 64, 64), N150, slices=SliceConfig(num_slices=3))
    assert all(len(candidate.plan.slices) == 3 for candidate in asked.candidates)


def test_slices_on_a_grid_are_made_again_by_their_config() -> None:
    conv = square(1, 112, 64, 64)
    found = plan_conv2d(conv, N150, grid=Mesh(1, 1)).best.plan
    assert found.slices
    again = plan_sliced(conv, Setup(machine=N150, config=found.config))
    assert (again.sharding, again.footprint, len(again.slices)) == (found.sharding, found.footprint, len(found.slices))


def test_a_setting_of_width_leaves_the_other_layouts_alone() -> None:
    """Two parts do not divide the nine tiles of its block; on fewer cores it has more of them."""
    conv, config = square(1, 14, 64, 64), Conv2dConfig(act_block_w_div=2)
    found = plan_conv2d(conv, N150, config)
    assert {ShardLayout.HEIGHT, ShardLayout.BLOCK} <= {candidate.plan.layout for candidate in found.candidates}
    assert found.explain()
    assert plan_sliced(conv, Setup(machine=N150, config=config), SliceConfig(axis="height")).fits
    with pytest.raises(TesseraError, match="act_block_w_div divides"):
        plan_conv2d(conv, N150, replace(config, shard_layout=ShardLayout.WIDTH))


def test_it_is_never_slower_than_what_a_user_may_set_by_hand() -> None:
    conv = square(8, 28, 128, 128)
    best = plan_conv2d(conv, N150).best
    by_hand = plan_sliced(conv, Setup(machine=N150), SliceConfig(num_slices=2), layout=ShardLayout.HEIGHT)
    assert best.plan.high_water <= N150.local_memory
    assert by_hand.ledger.total > best.plan.ledger.remote


def test_nothing_fits() -> None:
    with pytest.raises(TesseraError, match="does not fit"):
        _ = plan_conv2d(square(1, 4, 65536, 65536), N150).best
