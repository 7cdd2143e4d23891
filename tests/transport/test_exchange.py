"""Tests of exchanges between threads: every padding mode, both layouts, any split, several rounds, the adjoint."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import event, given, settings

from tessera.errors import TesseraError
from tessera.geometry import HaloPlan, Mesh, Partition, Window
from tessera.geometry.halo import PADDING_MODES, PaddingMode
from tessera.spatial.exchange import halo_exchange
from tessera.transport.exchange import Exchange
from tessera.transport.in_process import InProcessTransport, open_single_rank, run_ranks
from tests.transport.checks import Problem, check_frame, check_rounds, split_into_rows
from tests.transport.strategies import problems


@settings(max_examples=150, deadline=None)
@given(problems())
def test_any_exchange_and_its_adjoint(problem: Problem) -> None:
    ranks = len(problem.plan.workers)
    in_place = run_ranks(ranks, lambda transport: check_rounds(transport, problem).in_place)
    event("tile and frame in one buffer" if all(in_place) else "tile and frame apart")


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("mode", PADDING_MODES)
@pytest.mark.parametrize("mesh", [Mesh(1, 3), Mesh(3, 1), Mesh(2, 2), Mesh(6, 1)], ids=repr)
def test_every_padding_mode_on_every_mesh(mesh: Mesh, mode: PaddingMode, channels_last: bool) -> None:
    """Check meshes of up to six rows with a halo of two pixels, so that tiles of one row read several workers."""
    cut = Partition.split_by_grid((2, 6, 7), mesh)
    plan = HaloPlan(cut, Window.of(5, padding=2), cut, mode)
    problem = Problem(plan=plan, seed=int(torch.randint(1 << 30, ())), channels_last=channels_last)
    run_ranks(mesh.size, lambda transport: check_rounds(transport, problem))


def test_tile_and_frame_share_a_buffer_where_they_overlap() -> None:
    near = run_ranks(2, lambda transport: check_rounds(transport, Problem(plan=split_into_rows(2), seed=3)))
    assert all(exchange.in_place for exchange in near)
    assert all(x.tile_buffer.untyped_storage().data_ptr() == x.frame.untyped_storage().data_ptr() for x in near)
    (top,), *middle, (bottom,) = Partition.split_by_grid((1, 40, 3), Mesh(40, 1)).shards
    rest = [box for (box,) in middle]
    there, back = Partition.of([top, rest, bottom]), Partition.of([bottom, rest, top])
    problem = Problem(plan=HaloPlan(there, Window.of_one_pixel(), back), seed=4)
    far = run_ranks(3, lambda transport: check_rounds(transport, problem))
    assert [exchange.in_place for exchange in far] == [False, True, False]


def test_a_stale_border_fails_the_check() -> None:
    """Check that `check_frame`, which the other tests use, fails if a rank has the borders of the previous round."""

    def skip_exchange(transport: InProcessTransport) -> None:
        problem = Problem(plan=split_into_rows(2), seed=5)
        exchange = problem.open_exchange(transport)
        exchange.start(problem.make_tile(0, transport.rank))
        exchange.finish()
        exchange.wait_until_sent()
        exchange.tile_buffer.copy_(problem.make_tile(1, transport.rank))  # without sending the new borders
        transport.barrier()
        check_frame(transport.rank, problem, 1, exchange.frame)

    with pytest.raises(AssertionError, match="round 1"):
        run_ranks(2, skip_exchange)


def test_a_tile_in_the_tile_buffer_is_not_copied() -> None:
    def run(transport: InProcessTransport) -> bool:
        exchange = Problem(plan=split_into_rows(2), seed=6).open_exchange(transport)
        assert exchange.holds_tile(exchange.tile_buffer)
        assert not exchange.holds_tile(exchange.tile_buffer[:, :1]), "a part of it"
        assert not exchange.holds_tile(exchange.tile_buffer.clone())
        exchange.tile_buffer.fill_(transport.rank + 1)
        version = exchange.tile_buffer._version
        exchange.start(exchange.tile_buffer)
        frame = exchange.finish()
        border = frame[:, :, 5 if transport.rank == 0 else 0, 1:-1]
        return exchange.tile_buffer._version > version and bool((border == 2 - transport.rank).all())

    assert run_ranks(2, run) == [True, True]


@pytest.mark.parametrize(
    "tile",
    [
        torch.zeros(1, 2, 1, 64, dtype=torch.float64),
        torch.zeros(1, 2, 4, 64),
        torch.zeros(0, 2, 0, 0, dtype=torch.float64),
    ],
    ids=["broadcast", "dtype", "nothing"],
)
def test_a_tile_of_another_shape_or_dtype_is_refused(tile: torch.Tensor) -> None:
    """Check that a wrong tile is refused: `Tensor.copy_` would broadcast or convert such a tile silently."""
    exchange = Problem(plan=split_into_rows(1), seed=7).open_exchange(open_single_rank())
    with pytest.raises(
        TesseraError, match=r"for a tile of this rank: got .* allowed: \(1, 2, 4, 64\) of torch.float64"
    ):
        exchange.start(tile)


def test_a_plan_for_another_number_of_ranks_is_refused() -> None:
    with pytest.raises(TesseraError, match="the number of ranks does not match the plan: got '1 ranks'"):
        Exchange(open_single_rank(), split_into_rows(3), channels=1)


PLAN = split_into_rows(1)


def train(transport: InProcessTransport, forwards: int) -> torch.Tensor:
    """Run `forwards` forward passes, then backward of the first; return the gradient of the tile."""
    tile = torch.arange(256.0, dtype=torch.float64).reshape(1, 1, 4, 64).requires_grad_()
    weight = torch.ones(1, 1, 3, 3, dtype=torch.float64, requires_grad=True)
    losses = [F.conv2d(halo_exchange(tile * (n + 1), PLAN, transport), weight).sum() for n in range(forwards)]
    losses[0].backward()
    assert tile.grad is not None
    return tile.grad


def test_backward_after_the_frame_was_overwritten_raises() -> None:
    transport = open_single_rank()
    assert train(transport, forwards=1).sum() == 64 * 4 * 9 - 2 * 3 * (64 + 4) + 4
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        train(transport, forwards=2)


def test_exchanges_made_for_inference_work_for_training() -> None:
    with torch.inference_mode():
        exchange = Problem(plan=split_into_rows(1), seed=8).open_exchange(open_single_rank())
        exchange.start(torch.ones(1, 2, 4, 64, dtype=torch.float64))
        exchange.finish()
    weight = torch.ones(1, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    exchange.start(torch.full((1, 2, 4, 64), 2.0, dtype=torch.float64))
    F.conv2d(exchange.finish(), weight).sum().backward()
    assert weight.grad is not None
    np.testing.assert_array_equal(weight.grad[0, 0, 1], [2.0 * 4 * 63, 2.0 * 4 * 64, 2.0 * 4 * 63])
