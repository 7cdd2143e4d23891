"""Worker functions of the tests on ranks; ranks import them by name."""

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
from tessera.transport.registry import open_transport
from tessera.transport.transport import Transport
from tests.transport.checks import (
    CARRIED,
    Problem,
    check_dtype,
    check_frame,
    check_rounds,
    check_running_ahead,
    check_sums,
    split_into_rows,
)

LIMITS = (
    (0, 0),
    (0, 1 << 20),
    (100, 64),
    (1 << 20, 0),
)  # limits that force: direct copies, packing before copies, a mixture, messages only


@contextmanager
def open_with_limits(name: str, worker: Worker, eager: int, line: int) -> Iterator[Transport]:
    """Open a transport; `eager` and `line` set the limits of the shared transport, which select its code path."""
    from tessera.transport import shared, shared_arena

    defaults = shared.EAGER_BYTES, shared_arena.CACHE_LINE_BYTES
    shared.EAGER_BYTES, shared_arena.CACHE_LINE_BYTES = eager, line
    transport = open_transport(name, worker)
    try:
        yield transport
    finally:
        transport.close()
        shared.EAGER_BYTES, shared_arena.CACHE_LINE_BYTES = defaults


def exchange_on_rank(worker: Worker, name: str, problems: Sequence[Problem], limits: tuple[int, int]) -> list[str]:
    with open_with_limits(name, worker, *limits) as transport:
        return [check_rounds(transport, problem) and transport.name for problem in problems]


def exchange_between_hosts(worker: Worker, hosts: list[int], problems: Sequence[Problem]) -> str:
    """Exchange and sum over ranks that pretend to be on several hosts; return the name of the transport."""
    with open_on_hosts(worker, hosts) as transport:
        for problem in problems:
            check_rounds(transport, problem)
        check_sums(transport)
        check_running_ahead(transport)
        transport.barrier()
        return transport.name


@contextmanager
def open_on_hosts(worker: Worker, hosts: list[int]) -> Iterator[Transport]:
    """Open the mixed transport of a launcher, with the host of each rank as given."""
    worker.connect()
    if worker.spawn == "torchrun":
        from tessera.transport.mixed import MixedTransport

        transport: Transport = MixedTransport(hosts)
    else:
        from tessera.transport import shared

        def list_host_ranks(comm: Any) -> list[int]:
            return [rank for rank, host in enumerate(hosts) if host == hosts[comm.rank]]

        real, shared.list_host_ranks = shared.list_host_ranks, list_host_ranks
        transport = open_transport("shared", worker)
        shared.list_host_ranks = real
    try:
        yield transport
    finally:
        transport.close()


def list_limits(name: str) -> tuple[tuple[int, int], ...]:
    return LIMITS if name == "shared" else LIMITS[:1]


def run_ahead(worker: Worker, name: str) -> None:
    for limits in list_limits(name):
        with open_with_limits(name, worker, *limits) as transport:
            check_running_ahead(transport)


def exchange_every_dtype(worker: Worker, name: str) -> None:
    for limits in list_limits(name):
        with open_with_limits(name, worker, *limits) as transport:
            for dtype in CARRIED:
                check_dtype(transport, dtype)


def sum_every_dtype(worker: Worker, name: str) -> None:
    transport = open_transport(name, worker)
    check_sums(transport)
    transport.close()


def die_during_exchange(worker: Worker, name: str, which: int) -> None:
    """Kill rank `which` in the middle of a round, while the other ranks wait for its borders."""
    transport = open_transport(name, worker)
    exchange = Problem(plan=split_into_rows(worker.size, width=1 << 14), seed=0).open_exchange(transport)
    for number in range(100):
        exchange.start()
        if number == 50 and worker.rank == which:
            os.kill(os.getpid(), signal.SIGKILL)
        exchange.finish()


def fail_during_exchange(worker: Worker, name: str, which: int) -> None:
    """Raise an error on rank `which` in the middle of a round, while the other ranks wait for its borders."""
    transport = open_transport(name, worker)
    exchange = Problem(plan=split_into_rows(worker.size, width=1 << 14), seed=0).open_exchange(transport)
    for number in range(100):
        exchange.start()
        if number == 50 and worker.rank == which:
            raise ValueError("in the middle of a round")
        exchange.finish()


def use_after_close(worker: Worker, name: str) -> str:
    """Use an exchange after its transport was closed, then open a new transport; return the error message."""
    problem = Problem(plan=split_into_rows(worker.size), seed=1)
    transport = open_transport(name, worker)
    exchange = check_rounds(transport, problem)
    transport.close()
    transport.close()
    try:
        exchange.start()
        message = "nothing"
    except TesseraError as error:
        message = str(error)
    again = open_transport(name, worker)
    check_rounds(again, problem)
    again.close()
    return message


def count_descriptors(worker: Worker, name: str, rounds: int) -> tuple[int, int, int]:
    """Return the open files before and after opening and closing transports, and the mapped memory afterwards."""
    problem = Problem(plan=split_into_rows(worker.size, width=1 << 14), seed=2)

    def open_and_close() -> None:
        transport = open_transport(name, worker)
        check_rounds(transport, problem, rounds=1)
        transport.close()

    def count_resources() -> tuple[int, int]:
        maps = Path("/proc/self/maps").read_text()
        return len(os.listdir("/proc/self/fd")), maps.count("memfd:tessera")

    open_and_close()
    before, _ = count_resources()
    for _ in range(rounds):
        open_and_close()
    return (before, *count_resources())


def exchange_over_own_group(worker: Worker) -> None:
    """Call `halo_exchange` without a transport, over a process group that the ranks initialised themselves."""
    from tessera.spatial import halo_exchange
    from tessera.transport.process_groups import get_world_transport

    worker.connect()
    problem = Problem(plan=split_into_rows(worker.size), seed=11)
    expected = torch.ones(4, dtype=torch.float64)
    expected[0] += worker.rank > 0  # a neighbour also reads this row
    expected[-1] += worker.rank < worker.size - 1
    for number in range(3):
        tile = problem.make_tile(number, worker.rank).requires_grad_()
        frame = halo_exchange(tile, problem.plan)
        check_frame(worker.rank, problem, number, frame.detach())
        frame.sum().backward()
        assert tile.grad is not None
        assert torch.equal(tile.grad, expected.view(1, 1, 4, 1).expand_as(tile))
    assert get_world_transport(worker.size) is get_world_transport(worker.size)


def describe_transport(worker: Worker, name: str) -> Any:
    """Open a transport by name; return its name, rank and size, or the error message."""
    try:
        transport = open_transport(name, worker)
    except TesseraError as error:
        return str(error)
    description = transport.name, transport.rank, transport.size
    transport.close()
    return description
