"""Tests of plans: each required pixel arrives once, results equal the unsplit image's, backward is the adjoint."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.geometry import Box, HaloPlan, Mesh, Partition, Window
from tests.geometry.reference import apply_window, find_needed, pad_image, run_adjoint, run_exchange, split_image
from tests.geometry.strategies import place_on, plans

seeds = st.integers(0, 2**32 - 1)


def draw_integers(seed: int, *shape: int) -> np.ndarray[Any, Any]:
    """Return random nonzero integers as floats, whose sums are exact in any order."""
    return np.random.default_rng(seed).integers(1, 100, shape).astype(float)


@settings(max_examples=800, deadline=None)
@given(plans(), seeds)
def test_every_needed_pixel_arrives_exactly_once(plan: HaloPlan, seed: int) -> None:
    image = draw_integers(seed, *plan.inputs.sizes)
    reads = run_exchange(plan, split_image(plan, image, elsewhere=np.nan))
    for number, (worker, read) in enumerate(zip(plan.workers, reads, strict=True)):
        needed = find_needed(plan, number)
        expected = pad_image(image, worker.need, plan.mode) if worker.need else read
        np.testing.assert_array_equal(read[needed], expected[needed])
        assert not read[~needed].any(), "a pixel arrived that is not needed"
        if plan.mode == "zeros":
            padding = np.zeros(read.shape, dtype=int)
            for box in worker.pads:
                padding[box.relative_to(worker.need).slices] += 1
            np.testing.assert_array_equal(padding, needed & (pad_image(image, worker.need, "zeros") == 0))


@settings(max_examples=300, deadline=None)
@given(plans(), seeds)
def test_split_window_equals_unsplit_window(plan: HaloPlan, seed: int) -> None:
    image, weight = draw_integers(seed, *plan.inputs.sizes), draw_integers(seed + 1, *plan.window.kernel)
    whole = Box.from_sizes(plan.outputs.sizes)
    need = plan.window.compute_input_box(whole)
    expected = apply_window(plan.window, weight, pad_image(image, need, plan.mode), need, whole)
    reads = run_exchange(plan, split_image(plan, image, elsewhere=np.nan))
    for worker, shard, read in zip(plan.workers, plan.outputs.shards, reads, strict=True):
        for box in shard:
            actual = apply_window(plan.window, weight, read, worker.need, box)
            np.testing.assert_array_equal(actual, expected[box.slices])


@settings(max_examples=250, deadline=None)
@given(plans(), seeds)
def test_backward_is_the_adjoint(plan: HaloPlan, seed: int) -> None:
    having = split_image(plan, draw_integers(seed, *plan.inputs.sizes), elsewhere=0.0)
    reads = run_exchange(plan, having)
    grads = [draw_integers(seed + 1 + worker, *read.shape) for worker, read in enumerate(reads)]
    back = run_adjoint(plan, grads)
    forward = sum((read * grad).sum() for read, grad in zip(reads, grads, strict=True))
    backward = sum((tile * grad).sum() for tile, grad in zip(having, back, strict=True))
    assert forward == backward


@settings(max_examples=200, deadline=None)
@given(plans(), st.integers(1, 9))
def test_sends_match_receives_and_byte_counts(plan: HaloPlan, pixel: int) -> None:
    between = plan.count_link_bytes(pixel)
    for source, worker in enumerate(plan.workers):
        assert all(move.source == source != move.target for move in worker.sends)
        assert all(move.target == source != move.source for move in worker.receives)
        assert all(move.target == source == move.source for move in worker.keeps)
        for target, receiver in enumerate(plan.workers):
            sent = [move for move in worker.sends if move.target == target]
            assert sent == [move for move in receiver.receives if move.source == source], "both name them in one order"
            assert between.get((source, target), 0) == pixel * sum(move.target_box.size for move in sent)
    assert list(plan.moves) == [move for worker in plan.workers for move in worker.receives]
    assert plan.is_local == (not between)


def test_halos_wider_than_a_neighbour_come_from_further_away() -> None:
    columns = Partition.split_by_grid((1, 1, 8), Mesh(1, 8))
    plan = HaloPlan(columns, Window.of((1, 7), padding=(0, 3)), columns)
    assert [move.source for move in plan.workers[4].receives] == [1, 2, 3, 5, 6, 7]


def test_gather_and_scatter_as_halo_plans() -> None:
    cut, sizes = Partition.split_by_grid((2, 4, 4), Mesh(2, 2)), (2, 4, 4)
    gathered = HaloPlan(cut, Window.of_one_pixel(), place_on(sizes, 4, worker=2))
    assert [len(worker.receives) for worker in gathered.workers] == [0, 0, 3, 0]
    scattered = HaloPlan(place_on(sizes, 4), Window.of_one_pixel(), cut)
    assert [len(worker.sends) for worker in scattered.workers] == [3, 0, 0, 0]
    assert HaloPlan(Partition.replicate(sizes, 4), Window.of_one_pixel(), cut).is_local
    assert repr(gathered) == "HaloPlan(Window(kernel 1x1), 4 workers, 24 pixels move)"


QUARTERS = Partition.split_by_grid((1, 6, 6), Mesh(2, 2))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((QUARTERS, Window.of(3, padding=1), QUARTERS, "mirror"), "unknown padding mode 'mirror'; allowed: zeros"),
        (
            (QUARTERS, Window.of(3), Partition.split_by_grid((1, 4, 4), Mesh(1, 3))),
            "the input is split over 4 workers, the output over 3",
        ),
        ((QUARTERS, Window.of(3), QUARTERS), r"kernel 3x3\) on 1x6x6 has sizes 1x4x4, got 1x6x6"),
        ((QUARTERS, Window.of(9), QUARTERS), "spans 9 pixels does not fit an image of 6"),
        (
            (QUARTERS, Window.of(3, padding=1, dims=3), QUARTERS),
            "a window of 3 dims requires an image of as many spatial dims; got 2",
        ),
        (
            (QUARTERS, Window.of(13, padding=6), QUARTERS, "reflect"),
            "reflect padding of 6 pixels exceeds an image of 6",
        ),
        ((QUARTERS, Window.of(15, padding=7), QUARTERS, "circular"), "circular padding of 7 pixels exceeds"),
        (
            (QUARTERS, Window.of(3, padding=1, transposed=True), QUARTERS, "reflect"),
            "reflect padding requires a plain convolution, not Window",
        ),
        (
            (QUARTERS, Window.of(3, padding=1), Partition.split_runs((1, 6, 6), [9, 9, 9, 9]), "replicate"),
            "replicate padding requires one output box per worker",
        ),
        (
            (Partition((1, 6, 6), (QUARTERS.shards[0], (), (), ())), Window.of(3, padding=1), QUARTERS),
            r"no worker owns Box\(0:1, 3:4, 0:4\), which worker 0 needs",
        ),
    ],
)
def test_invalid_plans_are_refused(arguments: tuple[Any, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        HaloPlan(*arguments)


def test_planning_for_a_thousand_workers(capsys: pytest.CaptureFixture[str]) -> None:
    image = Partition.split_by_grid((1, 16384, 16384), Mesh(32, 32))
    began = time.process_time()
    plan = HaloPlan(image, Window.of(3, padding=1), image)
    took = time.process_time() - began
    with capsys.disabled():
        print(f"\n1,024 workers on 16,384 x 16,384: planned in {took:.3f} s of processor time")
    assert [len(plan.workers[worker].receives) for worker in (0, 1, 33)] == [3, 5, 8]
    assert sum(len(worker.receives) for worker in plan.workers) == 30 * 30 * 8 + 4 * 30 * 5 + 4 * 3
