"""Tests of ranks that call a parallel network differently, fail alone or are interrupted: errors, no deadlocks."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from tessera.errors import TesseraError
from tessera.launch import LaunchConfig, Worker, Workers
from tessera.spatial import ParallelModel, parallelize

pytestmark = [pytest.mark.timeout(300), pytest.mark.ranks]
TIME_LIMIT = 5.0  # seconds


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.fails = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), False

    def forward(self, x: Tensor, factor: Any = 1.0) -> Tensor:
        x = self.conv(x)
        if self.fails:
            raise ValueError("this rank fails")
        return self.norm(x) * factor


def make_image() -> Tensor:
    return torch.randn(2, 3, 8, 9, generator=torch.Generator().manual_seed(1))


def call_without_grad(parallel: ParallelModel, is_first: bool) -> None:
    with torch.set_grad_enabled(is_first):
        parallel(make_image())


def call_with_autocast(parallel: ParallelModel, is_first: bool) -> None:
    with torch.autocast("cpu", torch.bfloat16, enabled=is_first):
        parallel(make_image())


def call_with_other_weights(parallel: ParallelModel, is_first: bool) -> None:
    if is_first:
        for weight in parallel.parameters():
            torch.nn.init.normal_(weight)
    parallel(make_image())


CALLS: dict[str, tuple[Callable[[ParallelModel, bool], Any], str]] = {
    "images": (lambda parallel, first: parallel(make_image() + first), "the images of the ranks differ"),
    "shapes": (lambda parallel, first: parallel(make_image()[:, :, : 8 - first]), "the images of the ranks differ"),
    "dtypes": (lambda parallel, first: parallel(make_image().to(torch.float64 if first else torch.float32)), "images"),
    "small image": (lambda parallel, first: parallel(make_image()[..., : 1 if first else 9]), "the images of the rank"),
    "no image": (lambda parallel, first: parallel(*[make_image()] * first), "the images of the ranks differ"),
    "numbers": (lambda parallel, first: parallel(make_image(), 1.0 + first), "the arguments of the ranks differ"),
    "other tensors": (
        lambda parallel, first: parallel(make_image(), torch.full((4, 1, 1), 1.0 + first)),
        "the arguments of the ranks differ",
    ),
    "training modes": (
        lambda parallel, first: parallel.train(first)(make_image()),
        "the training modes of the modules of the ranks differ",
    ),
    "frozen weights": (
        lambda parallel, first: parallel.requires_grad_(first)(make_image()),
        "the gradient modes of the ranks differ",
    ),
    "no_grad": (call_without_grad, "the gradient modes of the ranks differ"),
    "autocast": (call_with_autocast, "the dtypes of the ranks differ"),
    "dtypes of weights": (
        lambda parallel, first: parallel.to(torch.float64 if first else torch.float32)(make_image()),
        "the dtypes of the ranks differ",
    ),
    "weights": (call_with_other_weights, "the weights of the ranks differ"),
}


def call_differently(worker: Worker, name: str) -> tuple[str, bool]:
    """Worker function: return the error message, and whether the ranks can continue afterwards."""
    worker.connect()
    torch.manual_seed(0)
    parallel = parallelize(Network(), f"1x{worker.size}")
    try:
        CALLS[name][0](parallel, worker.rank == 0)
        message = "accepted"
    except TesseraError as error:
        message = str(error)
    other = parallelize(Network(), f"1x{worker.size}")
    return message, bool(other.gather(other(make_image())).isfinite().all())


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers(LaunchConfig(spawn="torchrun", workers=2, time_limit=120)) as started:
        yield started


@pytest.mark.parametrize("name", CALLS)
def test_different_calls_are_errors_on_every_rank(workers: Workers, name: str) -> None:
    for message, can_continue in workers.run(f"{__name__}:call_differently", name):
        assert CALLS[name][1] in message
        assert can_continue


def parallelize_on_a_mesh(worker: Worker, mesh: str) -> str:
    worker.connect()
    try:
        parallelize(Network(), mesh)
    except TesseraError as error:
        return str(error)
    return "accepted"


@pytest.mark.parametrize(
    ("mesh", "message"),
    [("2x2", "a mesh of 2x2 requires 4 ranks: got '2 ranks'"), ("1x-2", "not a mesh"), ("wide", "not a mesh")],
)
def test_a_mesh_that_does_not_fit_the_ranks(workers: Workers, mesh: str, message: str) -> None:
    for error in workers.run(f"{__name__}:parallelize_on_a_mesh", mesh):
        assert message in error


def fail_on_one_rank(worker: Worker) -> tuple[str, float]:
    """Worker function: rank 1 raises inside of the network and catches the error; rank 0 waits for it."""
    worker.connect()
    group = dist.new_group([0, 1], timeout=timedelta(seconds=TIME_LIMIT))
    parallel = parallelize(Network(), "1x2", process_group=group)
    parallel(make_image())
    parallel.model.fails = worker.rank == 1
    began = time.monotonic()
    try:
        parallel(make_image())
    except (TesseraError, ValueError) as error:
        return str(error), time.monotonic() - began
    return "accepted", 0.0


def test_a_rank_that_fails_alone_does_not_block_the_others_for_ever() -> None:
    with Workers(LaunchConfig(spawn="torchrun", workers=2, time_limit=120)) as workers:
        (waiting, seconds), (failing, _) = workers.run(f"{__name__}:fail_on_one_rank")
    assert failing == "this rank fails"
    assert "rank 1 has not answered for 5 s: see its own error" in waiting
    assert TIME_LIMIT <= seconds < 60


def interrupt_a_waiting_rank(worker: Worker) -> tuple[str, float]:
    """Worker function: rank 1 makes no call; rank 0 waits for it in the network and gets Ctrl-C after a second."""
    worker.connect()
    parallel = parallelize(Network(), "1x2")
    parallel(make_image())
    if worker.rank == 1:
        return "idle", 0.0
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    began = time.monotonic()
    try:
        parallel(make_image())
    except KeyboardInterrupt:
        return "interrupted", time.monotonic() - began
    finally:
        signal.signal(signal.SIGINT, previous)
    return "accepted", 0.0


def test_a_waiting_rank_can_be_interrupted() -> None:
    with Workers(LaunchConfig(spawn="torchrun", workers=2, time_limit=120)) as workers:
        (result, seconds), _ = workers.run(f"{__name__}:interrupt_a_waiting_rank")
    assert result == "interrupted"
    assert seconds < 20
