"""What ranks are told to do: worker functions, which they import by name."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from tessera.errors import TesseraError
from tessera.launch import Worker
from tessera.transport.choose import open_transport
from tessera.transport.transport import Transport
from tests.transport.rounds import (
    CARRIED,
    Problem,
    check_dtype,
    check_frame,
    check_rounds,
    check_running_ahead,
    check_sums,
    rows_of_four,
)

WAYS = ((0, 0), (0, 1 << 20), (100, 64), (1 << 20, 0))  # by copies, gathered first, some of each, all in messages


@contextmanager
def opened(name: str, worker: Worker, eager: int, line: int) -> Iterator[Transport]:
    """A transport; if it is shared memory, with other limits than usual, so that small strips go every way there is."""
    from tessera.transport import shared

    usual, (shared.EAGER, shared.LINE) = (shared.EAGER, shared.LINE), (eager, line)
    transport = open_transport(name, worker)
    try:
        yield transport
    finally:
        transport.close()
        shared.EAGER, shared.LINE = usual


def exchange_on_rank(worker: Worker, name: str, problems: Sequence[Problem], limits: tuple[int, int]) -> list[str]:
    with opened(name, worker, *limits) as transport:
        return [check_rounds(transport, problem) and transport.name for problem in problems]


def _ways(name: str) -> tuple[tuple[int, int], ...]:
    return WAYS if name == "shared" else WAYS[:1]


def run_ahead(worker: Worker, name: str) -> None:
    for limits in _ways(name):
        with opened(name, worker, *limits) as transport:
            check_running_ahead(transport)


def carry_every_dtype(worker: Worker, name: str) -> None:
    for limits in _ways(name):
        with opened(name, worker, *limits) as transport:
            for dtype in CARRIED:
                check_dtype(transport, dtype)


def sum_every_dtype(worker: Worker, name: str) -> None:
    transport = open_transport(name, worker)
    check_sums(transport)
    transport.close()


def die_in_mid_exchange(worker: Worker, name: str, which: int) -> None:
    """A rank is killed when it has begun a round: the others wait for its borders."""
    transport = open_transport(name, worker)
    exchange = Problem(plan=rows_of_four(worker.size, width=1 << 14), seed=0).exchange(transport)
    for number in range(100):
        exchange.start()
        if number == 50 and worker.rank == which:
            os.kill(os.getpid(), signal.SIGKILL)
        exchange.finish()


def use_after_close(worker: Worker, name: str) -> str:
    """An exchange outlives its transport; the next transport is as good as new."""
    problem = Problem(plan=rows_of_four(worker.size), seed=1)
    transport = open_transport(name, worker)
    exchange = check_rounds(transport, problem)
    transport.close()
    transport.close()
    try:
        exchange.start()
        said = "nothing"
    except TesseraError as error:
        said = str(error)
    again = open_transport(name, worker)
    check_rounds(again, problem)
    again.close()
    return said


def descriptors(worker: Worker, name: str, rounds: int) -> tuple[int, int, int]:
    """Open files and mapped memory before and after some transports were opened and closed."""
    problem = Problem(plan=rows_of_four(worker.size, width=1 << 14), seed=2)

    def once() -> None:
        transport = open_transport(name, worker)
        check_rounds(transport, problem, rounds=1)
        transport.close()

    def held() -> tuple[int, int]:
        maps = Path("/proc/self/maps").read_text()
        return len(os.listdir("/proc/self/fd")), maps.count("memfd:tessera")

    once()
    before, _ = held()
    for _ in range(rounds):
        once()
    return (before, *held())


def over_own_group(worker: Worker) -> None:
    """`halo_exchange` without a transport, forward and backward, over what the ranks have initialised themselves."""
    from tessera.spatial import halo_exchange
    from tessera.transport.distributed import world

    worker.join()
    problem = Problem(plan=rows_of_four(worker.size), seed=11)
    expected = torch.ones(4, dtype=torch.float64)
    expected[0] += worker.rank > 0  # a row that a neighbour reads as well
    expected[-1] += worker.rank < worker.size - 1
    for number in range(3):
        tile = problem.tile(number, worker.rank).requires_grad_()
        frame = halo_exchange(tile, problem.plan)
        check_frame(worker.rank, problem, number, frame.detach())
        frame.sum().backward()
        assert tile.grad is not None
        assert torch.equal(tile.grad, expected.view(1, 1, 4, 1).expand_as(tile))
    assert world(worker.size) is world(worker.size)


def names(worker: Worker, name: str) -> Any:
    """Which transport a name opens here, or why none."""
    try:
        transport = open_transport(name, worker)
    except TesseraError as error:
        return str(error)
    found = transport.name, transport.rank, transport.size
    transport.close()
    return found
