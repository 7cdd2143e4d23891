"""Checks of exchanges on any transport, by comparison with the unsplit image.

Every rank derives the whole image and all gradients from a common seed, and so knows the expected values. All values
are small integers, so that sums are exact in any order.
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
from tessera.transport.all_reduce import HalfPrecisionSum
from tessera.transport.exchange import Exchange
from tessera.transport.layout import index_box
from tessera.transport.transport import Transport
from tests.geometry.reference import Array, find_needed, fold_gradient, pad_image

CARRIED = (
    "bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
    "float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "complex32", "complex64", "complex128",
)  # fmt: skip
SUMMED = (
    "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A test problem: a plan, and images and gradients of random integers."""

    plan: HaloPlan
    seed: int
    channels: int = 2
    dtype: str = "float64"
    channels_last: bool = False
    fill: float = 0.0

    def get_sizes(self) -> tuple[int, ...]:
        samples, *spatial = self.plan.inputs.sizes
        return (samples, self.channels, *spatial)

    def with_channels(self, box: Box) -> Box:
        return Box((box.dims[0], Interval(0, self.channels if box else 0), *box.dims[1:]))

    def make_image(self, number: int) -> Array:
        return np.random.default_rng([self.seed, number]).integers(1, 100, self.get_sizes()).astype(float)

    def make_tile(self, number: int, rank: int) -> torch.Tensor:
        """Return a rank's part of an image; pixels between its boxes, which it does not own, are NaN."""
        owned, image = self.with_channels(self.plan.workers[rank].owned), self.make_image(number)
        tile = np.full(owned.shape, np.nan)
        for box in map(self.with_channels, self.plan.inputs.shards[rank]):
            tile[box.relative_to(owned).slices] = image[box.slices]
        return torch.from_numpy(tile).to(getattr(torch, self.dtype))

    def make_grad(self, number: int, rank: int) -> Array:
        """Return a random gradient of a rank's input; it is zero for pixels that the rank's output does not read."""
        needed = find_needed(self.plan, rank)[:, None]
        random = np.random.default_rng([self.seed, number, rank])
        shape = (needed.shape[0], self.channels, *needed.shape[2:])
        return random.integers(1, 10, shape).astype(float) * needed

    def open_exchange(self, transport: Transport) -> Exchange:
        return Exchange(
            transport,
            self.plan,
            channels=self.channels,
            dtype=getattr(torch, self.dtype),
            channels_last=self.channels_last,
            fill=self.fill,
        )


def check_rounds(transport: Transport, problem: Problem, rounds: int = 3) -> Exchange:
    """Check several rounds with new pixels, forward and adjoint; odd rounds write the tile to `tile_buffer` first."""
    exchange = problem.open_exchange(transport)
    for number in range(rounds):
        tile = problem.make_tile(number, transport.rank).reshape(exchange.tile_buffer.shape)
        if number % 2:
            exchange.wait_until_sent()
            exchange.tile_buffer.copy_(tile)
            exchange.start()
        else:
            exchange.start(tile)
        check_frame(transport.rank, problem, number, exchange.finish())
        check_adjoint(transport, problem, number, exchange)
    return exchange


def check_frame(rank: int, problem: Problem, number: int, frame: torch.Tensor) -> None:
    box = problem.with_channels(problem.plan.workers[rank].need)
    needed = np.broadcast_to(find_needed(problem.plan, rank)[:, None], box.shape)
    expected = pad_image(problem.make_image(number), box, problem.plan.mode, problem.fill)
    assert tuple(frame.shape) == box.shape or not box, f"{tuple(frame.shape)} instead of {box.shape}"
    actual = frame.double().numpy().reshape(box.shape)
    np.testing.assert_array_equal(actual[needed], expected[needed], f"round {number}, rank {rank}")


def check_adjoint(transport: Transport, problem: Problem, number: int, exchange: Exchange) -> None:
    """Check that the ranks' gradients of their own pixels add up to the gradient of the image."""
    plan, mode = problem.plan, problem.plan.mode
    grads = [problem.make_grad(number, rank) for rank in range(len(plan.workers))]
    own_grad = torch.from_numpy(grads[transport.rank]).to(exchange.dtype)
    exchange.start_adjoint(own_grad)
    tile_grad = exchange.finish_adjoint()
    assert tile_grad.shape == exchange.tile_buffer.shape
    total = torch.zeros(problem.get_sizes(), dtype=torch.float64)
    if exchange.worker_plan.owned:
        total[problem.with_channels(exchange.worker_plan.owned).slices] = tile_grad.double()
    transport.all_reduce(total)
    boxes = [problem.with_channels(worker.need) for worker in plan.workers]
    expected = sum(
        fold_gradient(grad, box, problem.get_sizes(), mode) for grad, box in zip(grads, boxes, strict=True) if box
    ) + np.zeros(problem.get_sizes())
    np.testing.assert_array_equal(total.numpy(), expected, f"round {number}, rank {transport.rank}")


def check_running_ahead(transport: Transport, rounds: int = 150) -> None:
    """Check that no rank receives a border of a later round if ranks are delayed at random."""
    plan = split_into_rows(transport.size, width=1 << 10)
    exchange, late = Problem(plan=plan, seed=0).open_exchange(transport), random.Random(transport.rank)
    for number in range(rounds):
        exchange.wait_until_sent()
        exchange.tile_buffer.fill_(number * transport.size + transport.rank)
        exchange.start()
        if late.random() < 0.2:
            time.sleep(late.random() * 2e-3)
        exchange.finish()
        for move in exchange.worker_plan.receives:
            border = exchange.frame[index_box(exchange.worker_plan.frame, move.target_box)]
            expected = number * transport.size + move.source
            assert border.unique().tolist() == [expected], f"round {number}, rank {transport.rank}, from {move.source}"


def check_dtype(transport: Transport, dtype: str) -> None:
    """Check an exchange of random bytes as values of a dtype, with a halo on every side, in both layouts."""
    sizes = (1, 2 * transport.size, 3)
    rows = Partition.split_by_grid(sizes, Mesh(transport.size, 1))
    plan = HaloPlan(rows, Window.of(3, padding=1), rows)
    for channels_last in (False, True):
        problem = Problem(plan=plan, seed=0, dtype=dtype, channels_last=channels_last)
        exchange = problem.open_exchange(transport)
        image = torch.from_numpy(problem.make_image(0) % 3).to(exchange.dtype)
        exchange.start(image[problem.with_channels(exchange.worker_plan.owned).slices])
        need = exchange.worker_plan.need
        frame = exchange.finish()[:, :, :, 1:-1]
        inside = slice(max(0, need.dims[1].start), min(sizes[1], need.dims[1].stop))
        first = inside.start - need.dims[1].start
        rows_read = frame[:, :, first : first + inside.stop - inside.start]
        assert as_bytes(rows_read) == as_bytes(image[:, :, inside]), f"{dtype} on rank {transport.rank}"


def as_bytes(values: torch.Tensor) -> bytes:
    content: bytes = values.contiguous().view(torch.uint8).numpy().tobytes()
    return content


def split_into_rows(ranks: int, width: int = 64) -> HaloPlan:
    """Return a plan in which every rank has four rows and reads one row of each neighbour."""
    rows = Partition.split_by_grid((1, 4 * ranks, width), Mesh(ranks, 1))
    return HaloPlan(rows, Window.of(3, padding=1), rows)


def check_sums(transport: Transport) -> None:
    """Check sums of contiguous and strided tensors, some of them large."""
    ranks = range(transport.size)
    for dtype in (getattr(torch, name) for name in SUMMED):
        all_values = [np.random.default_rng(rank).integers(0, 12, (2, 3, 4, 5)) for rank in ranks]
        own = torch.from_numpy(all_values[transport.rank]).to(dtype)
        last = own.clone().to(memory_format=torch.channels_last)
        for values in (own.clone(), last, own.clone().permute(3, 1, 0, 2)):
            expected = torch.from_numpy(sum(all_values)).to(dtype)
            if values.shape != own.shape:
                expected = expected.permute(3, 1, 0, 2)
            transport.all_reduce(values)
            assert torch.equal(values, expected), dtype
    large = torch.tensor([2**40 + transport.rank], dtype=torch.int64)
    transport.all_reduce(large)
    assert large.item() == sum(2**40 + rank for rank in ranks)
    weight = torch.ones(3, requires_grad=True)
    transport.all_reduce(weight)
    assert weight.tolist() == [transport.size] * 3
    with pytest.raises(
        TesseraError, match="tensors of this dtype cannot be summed over ranks: got 'bool'; allowed: float64, "
    ):
        transport.all_reduce(torch.ones(2, dtype=torch.bool))
    half = HalfPrecisionSum(transport)
    for number, count in enumerate((1, 5, 4096, 5)):
        parts = [np.random.default_rng((number, rank)).integers(0, 12, count) for rank in ranks]
        values = torch.from_numpy(parts[transport.rank]).to(torch.float32)
        half(values)
        assert torch.equal(values, torch.from_numpy(sum(parts)).to(torch.float32)), f"{count} numbers as float16"
