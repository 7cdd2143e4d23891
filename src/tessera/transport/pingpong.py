"""What it costs two ranks to exchange a message: both send and receive at once, as neighbours do."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tessera.errors import BenchmarkFailed, TesseraError
from tessera.launch.worker import Worker

WARM_UP = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Two buffers and the way between them: `exchange` sends one to the peer and fills the other from it."""

    sent: memoryview
    received: memoryview
    exchange: Callable[[], None]


def pingpong(worker: Worker, sizes: Sequence[int], repeats: int = 50) -> list[dict[str, float]]:
    """Exchange messages between ranks 0 and 1 over the ranks' own library; other ranks get an empty list.

    Gives `bytes`, the median `seconds` of one exchange and the `least`, for each size. Every rank has to call
    it. Each size is checked with random bytes before it is timed.
    """
    if worker.size < 2 or worker.spawn not in ("torchrun", "mpiexec"):
        raise TesseraError(
            "a ping-pong needs ranks",
            got=f"{worker.size} worker(s), {worker.spawn}",
            allowed="2 or more workers of torchrun or mpiexec",
        )
    if repeats < 1 or any(size < 1 for size in sizes):
        got = f"{repeats} repeats of {list(sizes)} bytes"
        raise TesseraError("a ping-pong has repeats and sends bytes", got=got, allowed="1 or more of each")
    seed = worker.sync.agree(random.randrange(1 << 30))
    found = []
    for size in sizes:
        worker.sync.barrier()
        if worker.rank < 2:
            with open_link(worker, size) as link:
                _check(link, worker.rank, seed)
                found.append(_timed(link, repeats))
    return found


@contextmanager
def open_link(worker: Worker, size: int) -> Iterator[Link]:
    """Buffers of `size` bytes between ranks 0 and 1, over gloo or MPI; the ranks have joined already."""
    with (_gloo_link if worker.spawn == "torchrun" else _mpi_link)(1 - worker.rank, size) as link:
        yield link


@contextmanager
def _gloo_link(peer: int, size: int) -> Iterator[Link]:
    import torch
    import torch.distributed as dist

    sent, received = torch.zeros(size, dtype=torch.uint8), torch.zeros(size, dtype=torch.uint8)

    def exchange() -> None:
        for request in (dist.irecv(received, peer), dist.isend(sent, peer)):
            assert request is not None, "both ranks are in the default group"
            request.wait()

    yield Link(sent=sent.numpy().data, received=received.numpy().data, exchange=exchange)


@contextmanager
def _mpi_link(peer: int, size: int) -> Iterator[Link]:
    from mpi4py import MPI

    sent, received = memoryview(bytearray(size)), memoryview(bytearray(size))
    requests = [MPI.COMM_WORLD.Recv_init(received, peer), MPI.COMM_WORLD.Send_init(sent, peer)]

    def exchange() -> None:
        MPI.Prequest.Startall(requests)
        MPI.Request.Waitall(requests)

    yield Link(sent=sent, received=received, exchange=exchange)
    for request in requests:
        request.Free()


def _check(link: Link, rank: int, seed: int) -> None:
    """Both ranks can make each other's bytes from the seed, and so know what has to arrive."""
    size = len(link.sent)
    link.sent[:] = random.Random(seed + rank).randbytes(size)
    link.exchange()
    if link.received != random.Random(seed + 1 - rank).randbytes(size):
        raise BenchmarkFailed(f"a message of {size} bytes did not arrive intact at rank {rank}")


def _timed(link: Link, repeats: int) -> dict[str, float]:
    for _ in range(WARM_UP):
        link.exchange()
    took = []
    for _ in range(repeats):
        start = time.perf_counter_ns()
        link.exchange()
        took.append((time.perf_counter_ns() - start) / 1e9)
    return {"bytes": len(link.sent), "seconds": statistics.median(took), "least": min(took)}
