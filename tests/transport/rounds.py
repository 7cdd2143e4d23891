"""Exchanges on any transport against the uncut image.

Every rank makes the whole image and everybody's gradients from a common seed, and so knows what has to arrive. All
numbers are small and whole: sums are exact in any order.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from tessera.errors import TesseraError
from tessera.geometry import Box, HaloPlan, Interval, Mesh, Partition, Window
from tessera.transport.exchange import Exchange
from tessera.transport.half_sum import HalfSum
from tessera.transport.layout import index
from tessera.transport.transport import Transport
from tests.geometry.reference import Array, folded, needed, padded

CARRIED = (
    "bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
    "float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "complex32", "complex64", "complex128",
)  # fmt: skip
SUMMED = (
    "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An exchange of random whole numbers."""

    plan: HaloPlan
    seed: int
    channels: int = 2
    dtype: str = "float64"
    channels_last: bool = False
    fill: float = 0.0

    def sizes(self) -> tuple[int, ...]:
        samples, *spatial = self.plan.inputs.sizes
        return (samples, self.channels, *spatial)

    def with_channels(self, box: Box) -> Box:
        return Box((box.dims[0], Interval(0, self.channels if box else 0), *box.dims[1:]))

    def image(self, number: int) -> Array:
        return np.random.default_rng([self.seed, number]).integers(1, 100, self.sizes()).astype(float)

    def tile(self, number: int, rank: int) -> torch.Tensor:
        """What a rank has of an image; pixels between its boxes, which it has not, are no numbers."""
        owned, image = self.with_channels(self.plan.workers[rank].owned), self.image(number)
        found = np.full(owned.shape, np.nan)
        for box in map(self.with_channels, self.plan.inputs.shards[rank]):
            found[box.within(owned).slices] = image[box.slices]
        return torch.from_numpy(found).to(getattr(torch, self.dtype))

    def grad(self, number: int, rank: int) -> Array:
        """A gradient of what a rank reads, nothing where its output does not read."""
        wanted = needed(self.plan, rank)[:, None]
        random = np.random.default_rng([self.seed, number, rank])
        shape = (wanted.shape[0], self.channels, *wanted.shape[2:])
        return random.integers(1, 10, shape).astype(float) * wanted

    def exchange(self, transport: Transport) -> Exchange:
        return Exchange(
            transport,
            self.plan,
            channels=self.channels,
            dtype=getattr(torch, self.dtype),
            channels_last=self.channels_last,
            fill=self.fill,
        )


def check_rounds(transport: Transport, problem: Problem, rounds: int = 3) -> Exchange:
    """Several rounds with fresh pixels each, forward and adjoint; in every other one the tile is written in place."""
    exchange = problem.exchange(transport)
    for number in range(rounds):
        tile = problem.tile(number, transport.rank).reshape(exchange.home.shape)
        if number % 2:
            exchange.settle()
            exchange.home.copy_(tile)
            exchange.start()
        else:
            exchange.start(tile)
        check_frame(transport.rank, problem, number, exchange.finish())
        check_adjoint(transport, problem, number, exchange)
    return exchange


def check_frame(rank: int, problem: Problem, number: int, frame: torch.Tensor) -> None:
    box = problem.with_channels(problem.plan.workers[rank].need)
    wanted = np.broadcast_to(needed(problem.plan, rank)[:, None], box.shape)
    expected = padded(problem.image(number), box, problem.plan.mode, problem.fill)
    assert tuple(frame.shape) == box.shape or not box, f"{tuple(frame.shape)} instead of {box.shape}"
    found = frame.double().numpy().reshape(box.shape)
    np.testing.assert_array_equal(found[wanted], expected[wanted], f"round {number}, rank {rank}")


def check_adjoint(transport: Transport, problem: Problem, number: int, exchange: Exchange) -> None:
    """The ranks' gradients of what they own, added up, are the gradient of the image."""
    plan, mode = problem.plan, problem.plan.mode
    grads = [problem.grad(number, rank) for rank in range(len(plan.workers))]
    mine = torch.from_numpy(grads[transport.rank]).to(exchange.dtype)
    exchange.start_adjoint(mine)
    found = exchange.finish_adjoint()
    assert found.shape == exchange.home.shape
    total = torch.zeros(problem.sizes(), dtype=torch.float64)
    if exchange.mine.owned:
        total[problem.with_channels(exchange.mine.owned).slices] = found.double()
    transport.all_reduce(total)
    boxes = [problem.with_channels(worker.need) for worker in plan.workers]
    expected = sum(
        folded(grad, box, problem.sizes(), mode) for grad, box in zip(grads, boxes, strict=True) if box
    ) + np.zeros(problem.sizes())
    np.testing.assert_array_equal(total.numpy(), expected, f"round {number}, rank {transport.rank}")


def check_running_ahead(transport: Transport, rounds: int = 150) -> None:
    """Ranks that are late at random, and wait for each other nowhere but in the exchange: nobody's border is early."""
    plan = rows_of_four(transport.size, width=1 << 10)
    exchange, late = Problem(plan=plan, seed=0).exchange(transport), random.Random(transport.rank)
    for number in range(rounds):
        exchange.settle()
        exchange.home.fill_(number * transport.size + transport.rank)
        exchange.start()
        if late.random() < 0.2:
            time.sleep(late.random() * 2e-3)
        exchange.finish()
        for move in exchange.mine.receives:
            border = exchange.frame[index(exchange.mine.frame, move.placed)]
            expected = number * transport.size + move.source
            assert border.unique().tolist() == [expected], f"round {number}, rank {transport.rank}, from {move.source}"


def check_dtype(transport: Transport, dtype: str) -> None:
    """Random bytes as numbers of a dtype, a halo on every side, in both layouts."""
    sizes = (1, 2 * transport.size, 3)
    rows = Partition.grid(sizes, Mesh(transport.size, 1))
    plan = HaloPlan(rows, Window.of(3, padding=1), rows)
    for channels_last in (False, True):
        problem = Problem(plan=plan, seed=0, dtype=dtype, channels_last=channels_last)
        exchange = problem.exchange(transport)
        image = torch.from_numpy(problem.image(0) % 3).to(exchange.dtype)
        exchange.start(image[problem.with_channels(exchange.mine.owned).slices])
        need = exchange.mine.need
        found = exchange.finish()[:, :, :, 1:-1]
        inside = slice(max(0, need.dims[1].start), min(sizes[1], need.dims[1].stop))
        first = inside.start - need.dims[1].start
        rows_read = found[:, :, first : first + inside.stop - inside.start]
        assert as_bytes(rows_read) == as_bytes(image[:, :, inside]), f"{dtype} on rank {transport.rank}"


def as_bytes(values: torch.Tensor) -> bytes:
    found: bytes = values.contiguous().view(torch.uint8).numpy().tobytes()
    return found


def rows_of_four(ranks: int, width: int = 64) -> HaloPlan:
    """Every rank has rows, and reads one of each neighbour."""
    rows = Partition.grid((1, 4 * ranks, width), Mesh(ranks, 1))
    return HaloPlan(rows, Window.of(3, padding=1), rows)


def check_sums(transport: Transport) -> None:
    """Of values that lie in memory one after the other and in any other way, some of them large."""
    ranks = range(transport.size)
    for dtype in (getattr(torch, name) for name in SUMMED):
        everybody = [np.random.default_rng(rank).integers(0, 12, (2, 3, 4, 5)) for rank in ranks]
        mine = torch.from_numpy(everybody[transport.rank]).to(dtype)
        last = mine.clone().to(memory_format=torch.channels_last)
        for values in (mine.clone(), last, mine.clone().permute(3, 1, 0, 2)):
            expected = torch.from_numpy(sum(everybody)).to(dtype)
            if values.shape != mine.shape:
                expected = expected.permute(3, 1, 0, 2)
            transport.all_reduce(values)
            assert torch.equal(values, expected), dtype
    large = torch.tensor([2**40 + transport.rank], dtype=torch.int64)
    transport.all_reduce(large)
    assert large.item() == sum(2**40 + rank for rank in ranks)
    weight = torch.ones(3, requires_grad=True)
    transport.all_reduce(weight)
    assert weight.tolist() == [transport.size] * 3
    with pytest.raises(TesseraError, match="ranks add numbers: got 'bool'; allowed: float64, "):
        transport.all_reduce(torch.ones(2, dtype=torch.bool))
    half = HalfSum(transport)
    for number, count in enumerate((1, 5, 4096, 5)):
        parts = [np.random.default_rng((number, rank)).integers(0, 12, count) for rank in ranks]
        values = torch.from_numpy(parts[transport.rank]).to(torch.float32)
        half(values)
        assert torch.equal(values, torch.from_numpy(sum(parts)).to(torch.float32)), f"{count} numbers as float16"
