"""Tests of the plan search: it returns the fastest plan that fits, and a config that reproduces this plan."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest

from tessera.coregrid.bench import ConvCall
from tessera.coregrid.config import Conv2dConfig, ShardLayout, SliceConfig
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.device.device import open_device
from tessera.coregrid.formats import DTYPES, Layout
from tessera.coregrid.planning.plan import explain_fit, plan_layout, plan_one
from tessera.coregrid.planning.setup import ConvSetup
from tessera.coregrid.planning.slicing import plan_sliced
from tessera.coregrid.problem import ConvProblem
from tessera.coregrid.search import plan_conv2d
from tessera.errors import TesseraError
from tessera.geometry import Mesh
from tessera.machine import load_machine
from tests.coregrid.planning.shapes import square

N150 = load_machine("wormhole-n150")


def test_fastest_fitting_candidate_is_first() -> None:
    search = plan_conv2d(square(8, 56, 64, 64), N150)
    fitting = [candidate for candidate in search.candidates if candidate.fits]
    assert search.best is fitting[0]
    assert search.best.seconds == min(candidate.seconds for candidate in fitting)
    assert search.best.seconds <= search.auto.seconds
    assert {candidate.plan.layout for candidate in search.candidates} == set(ShardLayout)


def test_config_of_a_candidate_reproduces_its_plan() -> None:
    conv = square(16, 14, 256, 256)
    for candidate in plan_conv2d(conv, N150).candidates:
        again = plan_one(conv, N150, candidate.plan.config)
        assert (again.sharding, again.blocks, again.footprint) == (
            candidate.plan.sharding,
            candidate.plan.blocks,
            candidate.plan.footprint,
        )


def test_search_does_not_change_requested_settings() -> None:
    config = Conv2dConfig(shard_layout=ShardLayout.BLOCK, act_block_h_override=64, enable_act_double_buffer=True)
    search = plan_conv2d(square(16, 14, 256, 256), N150, config, grid=Mesh(4, 8))
    for candidate in search.candidates:
        assert candidate.plan.layout == ShardLayout.BLOCK
        assert candidate.plan.grid == Mesh(4, 8)
        assert candidate.plan.config.act_block_h_override == 64
        assert candidate.plan.config.enable_act_double_buffer


def test_explain_names_layouts_that_do_not_fit() -> None:
    lines = plan_conv2d(square(8, 112, 64, 64), N150).explain()
    assert "us" in lines[0]
    assert lines[1].startswith("the chip's default rule selects ")
    assert any(line.startswith("HEIGHT does not fit: needs ") and " saves " in line for line in lines[2:])


def test_slices_are_searched_if_no_unsliced_plan_fits() -> None:
    search = plan_conv2d(square(4, 512, 64, 64), N150)
    assert search.best.plan.slices
    assert search.best.fits
    assert "slices of the" in str(search.best)
    requested = plan_conv2d(square(1, 56, 64, 64), N150, slices=SliceConfig(num_slices=3))
    assert all(len(candidate.plan.slices) == 3 for candidate in requested.candidates)


def test_config_of_sliced_candidates_reproduces_their_plan() -> None:
    conv = square(1, 112, 64, 64)
    search = plan_conv2d(conv, N150, grid=Mesh(1, 1)).best.plan
    assert search.slices
    again = plan_sliced(conv, ConvSetup(machine=N150, config=search.config))
    assert (again.sharding, again.footprint, len(again.slices)) == (
        search.sharding,
        search.footprint,
        len(search.slices),
    )


def test_width_setting_keeps_other_layouts() -> None:
    """Check that act_block_w_div=2, which does not divide the nine tiles of the WIDTH block, excludes only WIDTH."""
    conv, config = square(1, 14, 64, 64), Conv2dConfig(act_block_w_div=2)
    search = plan_conv2d(conv, N150, config)
    assert {ShardLayout.HEIGHT, ShardLayout.BLOCK} <= {candidate.plan.layout for candidate in search.candidates}
    assert search.explain()
    assert plan_sliced(conv, ConvSetup(machine=N150, config=config), SliceConfig(axis="height")).fits
    with pytest.raises(TesseraError, match="act_block_w_div must divide"):
        plan_conv2d(conv, N150, replace(config, shard_layout=ShardLayout.WIDTH))


def test_search_is_never_slower_than_manual_settings() -> None:
    conv = square(8, 28, 128, 128)
    best = plan_conv2d(conv, N150).best
    by_hand = plan_sliced(conv, ConvSetup(machine=N150), SliceConfig(num_slices=2), layout=ShardLayout.HEIGHT)
    assert best.plan.high_water <= N150.local_memory
    assert by_hand.ledger.total > best.plan.ledger.remote


def test_error_if_no_candidate_fits() -> None:
    with pytest.raises(TesseraError, match="does not fit"):
        _ = plan_conv2d(square(1, 4, 65536, 65536), N150).best


def test_a_setting_that_is_said_to_make_a_plan_fit_makes_it_fit() -> None:
    """Apply the setting that the explanation names, for random convolutions that do not fit."""
    rng, named = random.Random(11), 0
    for _ in range(60):
        conv = square(
            rng.choice([1, 4, 16]), rng.choice([28, 56, 112]), rng.choice([64, 128, 256]), rng.choice([64, 256])
        )
        plan = plan_one(conv, load_machine("wormhole-n150"), layout=rng.choice(list(ShardLayout)))
        match = re.search(r"; (\w+)=(\S+) saves .* and makes it fit", explain_fit(plan))
        if plan.fits or match is None:
            continue
        value: object = DTYPES.get(match[2]) or (match[2] == "True" if match[2] in ("True", "False") else int(match[2]))
        setup = replace(plan.setup, config=replace(plan.config, **{match[1]: value}))  # type: ignore[arg-type]
        assert plan_layout(conv, plan.layout, setup).fits
        named += 1
    assert named >= 5


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_fastest_plan_of_random_convolutions_runs_within_its_memory() -> None:
    """Execute the fastest plan: it uses the memory that it states, and is never slower than the default rule."""
    rng, machine = random.Random(23), load_machine("wormhole-n150")
    for _ in range(200):
        kernel, size = rng.choice([1, 2, 3, 5, 7]), rng.choice([7, 14, 20, 28, 33, 56])
        groups = rng.choice([1, 1, 1, 2])
        conv = Convolution(
            batch=rng.choice([1, 2, 3]),
            height=size,
            width=rng.choice([size, size + 3]),
            in_channels=groups * rng.choice([3, 16, 32, 60, 128]),
            out_channels=groups * rng.choice([8, 32, 64, 100, 256]),
            kernel=(kernel, kernel),
            stride=(rng.choice([1, 1, 2]),) * 2,
            padding=((kernel // 2,) * 2, (kernel // 2,) * 2),
            groups=groups,
        )
        setup = ConvSetup(machine=machine, input_layout=Layout.ROW_MAJOR, bias=True)
        problem = ConvProblem(conv=conv, setup=setup, choice="search")
        search = problem.search()
        assert not search.auto.fits or search.best.seconds <= search.auto.seconds, conv
        device = open_device(machine)
        call = ConvCall(device, search.best.plan, problem)
        ledger, peak = call.count_bytes_and_peak_memory()
        assert (ledger, peak) == (search.best.plan.ledger, search.best.plan.high_water), conv
        device.close()
