"""Timing of messages between two ranks that send and receive at the same time, as in a halo exchange."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tessera.errors import BenchmarkFailed, TesseraError
from tessera.launch.worker import Worker

WARMUP_EXCHANGES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PingPongLink:
    """The two buffers of a rank; `exchange` sends the first, and receives the peer's message in the second."""

    sent: memoryview
    received: memoryview
    exchange: Callable[[], None]


def measure_pingpong(worker: Worker, sizes: Sequence[int], repeats: int = 50) -> list[dict[str, float]]:
    """Time messages between ranks 0 and 1 over gloo or MPI; other ranks get an empty list.

    Returns for each size its `bytes`, and the median (`seconds`) and minimum (`least`) time of one exchange. All ranks
    must call it. Each size is checked with random bytes before it is timed.
    """
    if worker.size < 2 or worker.spawn not in ("torchrun", "mpiexec"):
        raise TesseraError(
            "a ping-pong requires connected ranks",
            got=f"{worker.size} worker(s), {worker.spawn}",
            allowed="2 or more workers of torchrun or mpiexec",
        )
    if repeats < 1 or any(size < 1 for size in sizes):
        got = f"{repeats} repeats of {list(sizes)} bytes"
        raise TesseraError("the numbers of repeats and bytes must be positive", got=got, allowed="1 or more of each")
    seed = worker.sync.agree(random.randrange(1 << 30))
    results = []
    for size in sizes:
        worker.sync.barrier()
        if worker.rank < 2:
            with open_link(worker, size) as link:
                _check(link, worker.rank, seed)
                results.append(_time_exchanges(link, repeats))
    return results


@contextmanager
def open_link(worker: Worker, size: int) -> Iterator[PingPongLink]:
    """Open a link with buffers of `size` bytes between ranks 0 and 1, which are already connected by gloo or MPI."""
    with (_open_gloo_link if worker.spawn == "torchrun" else _open_mpi_link)(1 - worker.rank, size) as link:
        yield link


@contextmanager
def _open_gloo_link(peer: int, size: int) -> Iterator[PingPongLink]:
    import torch
    import torch.distributed as dist

    sent, received = torch.zeros(size, dtype=torch.uint8), torch.zeros(size, dtype=torch.uint8)

    def exchange() -> None:
        for request in (dist.irecv(received, peer), dist.isend(sent, peer)):
            assert request is not None, "both ranks are in the default group"
            request.wait()

    yield PingPongLink(sent=sent.numpy().data, received=received.numpy().data, exchange=exchange)


@contextmanager
def _open_mpi_link(peer: int, size: int) -> Iterator[PingPongLink]:
    from mpi4py import MPI

    sent, received = memoryview(bytearray(size)), memoryview(bytearray(size))
    requests = [MPI.COMM_WORLD.Recv_init(received, peer), MPI.COMM_WORLD.Send_init(sent, peer)]

    def exchange() -> None:
        MPI.Prequest.Startall(requests)
        MPI.Request.Waitall(requests)

    yield PingPongLink(sent=sent, received=received, exchange=exchange)
    for request in requests:
        request.Free()


def _check(link: PingPongLink, rank: int, seed: int) -> None:
    """Exchange random bytes and check the received bytes. Both ranks derive the expected bytes from the seed."""
    size = len(link.sent)
    link.sent[:] = random.Random(seed + rank).randbytes(size)
    link.exchange()
    if link.received != random.Random(seed + 1 - rank).randbytes(size):
        raise BenchmarkFailed(f"a message of {size} bytes did not arrive intact at rank {rank}")


def _time_exchanges(link: PingPongLink, repeats: int) -> dict[str, float]:
    for _ in range(WARMUP_EXCHANGES):
        link.exchange()
    times = []
    for _ in range(repeats):
        start = time.perf_counter_ns()
        link.exchange()
        times.append((time.perf_counter_ns() - start) / 1e9)
    return {"bytes": len(link.sent), "seconds": statistics.median(times), "least": min(times)}
