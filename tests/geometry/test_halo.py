"""Plans: each needed pixel arrives exactly once, the cut equals the uncut, and the way back is the adjoint."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.geometry import Box, HaloPlan, Mesh, Partition, Window
from tests.geometry.drawn import plans
from tests.geometry.reference import exchanged, needed, padded, returned, tiles, windowed

seeds = st.integers(0, 2**32 - 1)


def whole_numbers(seed: int, *shape: int) -> np.ndarray[Any, Any]:
    """Random, not zero, and exact in any order of adding."""
    return np.random.default_rng(seed).integers(1, 100, shape).astype(float)


@settings(max_examples=800, deadline=None)
@given(plans(), seeds)
def test_every_needed_pixel_arrives_exactly_once(plan: HaloPlan, seed: int) -> None:
    image = whole_numbers(seed, *plan.inputs.sizes)
    found = exchanged(plan, tiles(plan, image, elsewhere=np.nan))
    for number, (worker, read) in enumerate(zip(plan.workers, found, strict=True)):
        wanted = needed(plan, number)
        expected = padded(image, worker.need, plan.mode) if worker.need else read
        np.testing.assert_array_equal(read[wanted], expected[wanted])
        assert not read[~wanted].any(), "something came that nobody asked for"
        if plan.mode == "zeros":
            padding = np.zeros(read.shape, dtype=int)
            for box in worker.pads:
                padding[box.within(worker.need).slices] += 1
            np.testing.assert_array_equal(padding, wanted & (padded(image, worker.need, "zeros") == 0))


@settings(max_examples=300, deadline=None)
@given(plans(), seeds)
def test_the_cut_equals_the_uncut(plan: HaloPlan, seed: int) -> None:
    image, weight = whole_numbers(seed, *plan.inputs.sizes), whole_numbers(seed + 1, *plan.window.kernel)
    whole = Box.whole(plan.outputs.sizes)
    need = plan.window.needs(whole)
    uncut = windowed(plan.window, weight, padded(image, need, plan.mode), need, whole)
    reads = exchanged(plan, tiles(plan, image, elsewhere=np.nan))
    for worker, shard, read in zip(plan.workers, plan.outputs.shards, reads, strict=True):
        for box in shard:
            found = windowed(plan.window, weight, read, worker.need, box)
            np.testing.assert_array_equal(found, uncut[box.slices])


@settings(max_examples=250, deadline=None)
@given(plans(), seeds)
def test_the_way_back_is_the_adjoint(plan: HaloPlan, seed: int) -> None:
    having = tiles(plan, whole_numbers(seed, *plan.inputs.sizes), elsewhere=0.0)
    reads = exchanged(plan, having)
    grads = [whole_numbers(seed + 1 + worker, *read.shape) for worker, read in enumerate(reads)]
    back = returned(plan, grads)
    forward = sum((read * grad).sum() for read, grad in zip(reads, grads, strict=True))
    backward = sum((tile * grad).sum() for tile, grad in zip(having, back, strict=True))
    assert forward == backward


@settings(max_examples=200, deadline=None)
@given(plans(), st.integers(1, 9))
def test_what_is_sent_is_received_and_adds_up(plan: HaloPlan, pixel: int) -> None:
    between = plan.bytes_between(pixel)
    for source, worker in enumerate(plan.workers):
        assert all(move.source == source != move.target for move in worker.sends)
        assert all(move.target == source != move.source for move in worker.receives)
        assert all(move.target == source == move.source for move in worker.keeps)
        for target, other in enumerate(plan.workers):
            sent = [move for move in worker.sends if move.target == target]
            assert sent == [move for move in other.receives if move.source == source], "both name them in one order"
            assert between.get((source, target), 0) == pixel * sum(move.placed.size for move in sent)
    assert list(plan.moves) == [move for worker in plan.workers for move in worker.receives]
    assert plan.is_local == (not between)


def test_halos_wider_than_a_neighbour_come_from_further_away() -> None:
    columns = Partition.grid((1, 1, 8), Mesh(1, 8))
    plan = HaloPlan(columns, Window.of((1, 7), padding=(0, 3)), columns)
    assert [move.source for move in plan.workers[4].receives] == [1, 2, 3, 5, 6, 7]


def test_gathering_and_scattering_are_plans() -> None:
    cut, sizes = Partition.grid((2, 4, 4), Mesh(2, 2)), (2, 4, 4)
    gathered = HaloPlan(cut, Window.point(), Partition.at(sizes, 4, worker=2))
    assert [len(worker.receives) for worker in gathered.workers] == [0, 0, 3, 0]
    scattered = HaloPlan(Partition.at(sizes, 4), Window.point(), cut)
    assert [len(worker.sends) for worker in scattered.workers] == [3, 0, 0, 0]
    assert HaloPlan(Partition.everywhere(sizes, 4), Window.point(), cut).is_local
    assert repr(gathered) == "HaloPlan(Window(kernel 1x1), 4 workers, 24 pixels move)"


QUARTERS = Partition.grid((1, 6, 6), Mesh(2, 2))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((QUARTERS, Window.of(3, padding=1), QUARTERS, "mirror"), "unknown padding mode 'mirror'; allowed: zeros"),
        ((QUARTERS, Window.of(3), Partition.grid((1, 4, 4), Mesh(1, 3))), "4 workers have the input, 3 want"),
        ((QUARTERS, Window.of(3), QUARTERS), r"kernel 3x3\) makes 1x4x4 of 1x6x6, not 1x6x6"),
        ((QUARTERS, Window.of(9), QUARTERS), "spans 9 pixels does not fit an image of 6"),
        ((QUARTERS, Window.of(3, padding=1, dims=3), QUARTERS), "a window of 3 dims on an image of 2"),
        ((QUARTERS, Window.of(13, padding=6), QUARTERS, "reflect"), "reflect padding of 6 pixels is more than"),
        ((QUARTERS, Window.of(15, padding=7), QUARTERS, "circular"), "circular padding of 7 pixels is more"),
        (
            (QUARTERS, Window.of(3, padding=1, transposed=True), QUARTERS, "reflect"),
            "reflect padding goes with plain convolutions, not with Window",
        ),
        (
            (QUARTERS, Window.of(3, padding=1), Partition.runs((1, 6, 6), [9, 9, 9, 9]), "replicate"),
            "replicate padding needs one box of output per worker",
        ),
        (
            (Partition((1, 6, 6), (QUARTERS.shards[0], (), (), ())), Window.of(3, padding=1), QUARTERS),
            r"nobody owns Box\(0:1, 3:4, 0:4\), which worker 0 needs",
        ),
    ],
)
def test_plans_that_make_no_sense(arguments: tuple[Any, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        HaloPlan(*arguments)


def test_planning_for_a_thousand_workers(capsys: pytest.CaptureFixture[str]) -> None:
    image = Partition.grid((1, 16384, 16384), Mesh(32, 32))
    began = time.process_time()
    plan = HaloPlan(image, Window.of(3, padding=1), image)
    took = time.process_time() - began
    with capsys.disabled():
        print(f"\n1,024 workers on 16,384 x 16,384: planned in {took:.3f} s of processor time")
    assert [len(plan.workers[worker].receives) for worker in (0, 1, 33)] == [3, 5, 8]
    assert sum(len(worker.receives) for worker in plan.workers) == 30 * 30 * 8 + 4 * 30 * 5 + 4 * 3
