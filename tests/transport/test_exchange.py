"""Exchanges between threads: every padding mode, both layouts, any cut, round after round, and the way back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import event, given, settings

from tessera.errors import TesseraError
from tessera.geometry import HaloPlan, Mesh, Partition, Window
from tessera.geometry.halo import MODES, Mode
from tessera.spatial.exchange import halo_exchange
from tessera.transport.exchange import Exchange
from tessera.transport.in_process import InProcessTransport, alone, run_ranks
from tests.transport.drawn import problems
from tests.transport.rounds import Problem, check_frame, check_rounds, rows_of_four


@settings(max_examples=150, deadline=None)
@given(problems())
def test_any_exchange_and_its_adjoint(problem: Problem) -> None:
    ranks = len(problem.plan.workers)
    in_place = run_ranks(ranks, lambda transport: check_rounds(transport, problem).in_place)
    event("home and frame in one buffer" if all(in_place) else "home and frame apart")


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("mesh", [Mesh(1, 3), Mesh(3, 1), Mesh(2, 2), Mesh(6, 1)], ids=repr)
def test_every_padding_mode_on_every_mesh(mesh: Mesh, mode: Mode, channels_last: bool) -> None:
    """Six rows of one pixel each, and a halo of two: several hops."""
    cut = Partition.grid((2, 6, 7), mesh)
    plan = HaloPlan(cut, Window.of(5, padding=2), cut, mode)
    problem = Problem(plan=plan, seed=int(torch.randint(1 << 30, ())), channels_last=channels_last)
    run_ranks(mesh.size, lambda transport: check_rounds(transport, problem))


def test_home_and_frame_share_a_buffer_where_they_meet() -> None:
    near = run_ranks(2, lambda transport: check_rounds(transport, Problem(plan=rows_of_four(2), seed=3)))
    assert all(exchange.in_place for exchange in near)
    assert all(x.home.untyped_storage().data_ptr() == x.frame.untyped_storage().data_ptr() for x in near)
    (top,), *middle, (bottom,) = Partition.grid((1, 40, 3), Mesh(40, 1)).shards
    rest = [box for (box,) in middle]
    there, back = Partition.of([top, rest, bottom]), Partition.of([bottom, rest, top])
    problem = Problem(plan=HaloPlan(there, Window.point(), back), seed=4)
    far = run_ranks(3, lambda transport: check_rounds(transport, problem))
    assert [exchange.in_place for exchange in far] == [False, True, False]


def test_a_missing_hop_would_show() -> None:
    """The check of the other tests fails when a rank's borders are those of the round before."""

    def stale(transport: InProcessTransport) -> None:
        problem = Problem(plan=rows_of_four(2), seed=5)
        exchange = problem.exchange(transport)
        exchange.start(problem.tile(0, transport.rank))
        exchange.finish()
        exchange.settle()
        exchange.home.copy_(problem.tile(1, transport.rank))  # and nobody is told
        transport.barrier()
        check_frame(transport.rank, problem, 1, exchange.frame)

    with pytest.raises(AssertionError, match="round 1"):
        run_ranks(2, stale)


def test_a_tile_that_lies_in_home_is_not_copied() -> None:
    def run(transport: InProcessTransport) -> bool:
        exchange = Problem(plan=rows_of_four(2), seed=6).exchange(transport)
        assert exchange.holds(exchange.home)
        assert not exchange.holds(exchange.home[:, :1]), "a part of it"
        assert not exchange.holds(exchange.home.clone())
        exchange.home.fill_(transport.rank + 1)
        version = exchange.home._version
        exchange.start(exchange.home)
        frame = exchange.finish()
        other = frame[:, :, 5 if transport.rank == 0 else 0, 1:-1]
        return exchange.home._version > version and bool((other == 2 - transport.rank).all())

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
    """Even where copying would make it fit."""
    exchange = Problem(plan=rows_of_four(1), seed=7).exchange(alone())
    with pytest.raises(TesseraError, match=r"what its rank owns: got .* allowed: \(1, 2, 4, 64\) of torch.float64"):
        exchange.start(tile)


def test_a_plan_is_for_its_own_number_of_ranks() -> None:
    with pytest.raises(TesseraError, match="a plan is carried out by its own number of ranks: got '1 ranks'"):
        Exchange(alone(), rows_of_four(3), channels=1)


PLAN = rows_of_four(1)


def train(transport: InProcessTransport, forwards: int) -> torch.Tensor:
    """The gradient of a tile, from a convolution that saved the frame of the first of some forwards."""
    tile = torch.arange(256.0, dtype=torch.float64).reshape(1, 1, 4, 64).requires_grad_()
    weight = torch.ones(1, 1, 3, 3, dtype=torch.float64, requires_grad=True)
    losses = [F.conv2d(halo_exchange(tile * (n + 1), PLAN, transport), weight).sum() for n in range(forwards)]
    losses[0].backward()
    assert tile.grad is not None
    return tile.grad


def test_a_frame_that_was_written_over_before_backward_is_an_error_not_a_wrong_gradient() -> None:
    transport = alone()
    assert train(transport, forwards=1).sum() == 64 * 4 * 9 - 2 * 3 * (64 + 4) + 4
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        train(transport, forwards=2)


def test_what_was_made_for_inference_serves_training() -> None:
    with torch.inference_mode():
        exchange = Problem(plan=rows_of_four(1), seed=8).exchange(alone())
        exchange.start(torch.ones(1, 2, 4, 64, dtype=torch.float64))
        exchange.finish()
    weight = torch.ones(1, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    exchange.start(torch.full((1, 2, 4, 64), 2.0, dtype=torch.float64))
    F.conv2d(exchange.finish(), weight).sum().backward()
    assert weight.grad is not None
    np.testing.assert_array_equal(weight.grad[0, 0, 1], [2.0 * 4 * 63, 2.0 * 4 * 64, 2.0 * 4 * 63])
