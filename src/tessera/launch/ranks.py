"""Collective operations of ranks (barrier, broadcast, gather) over inherited sockets, torch.distributed or MPI.

The library that connects the ranks is started at first use, never on import.
"""

from __future__ import annotations

import atexit
import os
import pickle
import socket
import sys
from functools import cached_property
from multiprocessing.connection import Connection
from typing import Any, Protocol, TypeVar

from tessera.affinity import get_affinity, set_affinity
from tessera.errors import MissingExtra, TesseraError
from tessera.launch.job import Job
from tessera.measure.sync import Sync

T = TypeVar("T")


class Ranks(Sync, Protocol):
    """The interface of connected ranks that, besides synchronising, can gather values and end the whole job."""

    def gather(self, value: bytes) -> list[bytes]:
        """Return the values of all ranks, by rank, on every rank."""

    def abort(self, code: int) -> None:
        """End the whole job. Does not return."""


class GlooRanks:
    """Ranks of a torchrun job, connected by gloo; `MASTER_ADDR` and `MASTER_PORT` name the rendezvous."""

    def __init__(self, rank: int, size: int) -> None:
        self._rank, self._size = rank, size

    def _open_store(self) -> Any:
        """Return the store of the rendezvous; None: torch opens the store that the environment names."""
        return None

    @cached_property
    def _dist(self) -> Any:
        import torch.distributed as dist

        if not dist.is_initialized():
            # gloo's threads inherit the current CPU affinity. On the rank's own core they would compete with it, and
            # an exchange of 256 KiB would take 3 ms instead of 0.5 ms.
            pinned = get_affinity()
            set_affinity(get_affinity(os.getppid()))
            try:
                store = self._open_store()
                dist.init_process_group("gloo", rank=self._rank, world_size=self._size, store=store)
            finally:
                set_affinity(pinned)
            atexit.register(_destroy_process_group)
        return dist

    def barrier(self) -> None:
        self._dist.barrier()

    def agree(self, value: T) -> T:
        box = [value]
        self._dist.broadcast_object_list(box, src=0)
        return box[0]

    def gather(self, value: bytes) -> list[bytes]:
        values: list[bytes] = [b""] * self._size
        self._dist.all_gather_object(values, value)
        return values

    def abort(self, code: int) -> None:
        # torch's agent detects that this rank ended, and ends the other ranks.
        sys.stderr.flush()
        os._exit(code)


class MpiRanks:
    """Ranks connected by MPI, through mpi4py."""

    def __init__(self, rank: int, size: int) -> None:
        self._rank, self._size = rank, size

    @cached_property
    def _world(self) -> Any:
        try:
            from mpi4py import MPI
        except ImportError:
            raise MissingExtra("mpi4py", "mpi") from None
        world = MPI.COMM_WORLD
        if world.size != self._size:
            raise TesseraError(
                "the launcher of the job and the MPI library that mpi4py loads do not match",
                got=f"{world.size} rank in {MPI.get_vendor()[0]}",
                allowed=f"{self._size} ranks",
                do="start with that library's mpiexec (srun: see --mpi), and install one MPI wheel only",
            )
        return world

    def barrier(self) -> None:
        self._world.Barrier()

    def agree(self, value: T) -> T:
        agreed: T = self._world.bcast(value, root=0)
        return agreed

    def gather(self, value: bytes) -> list[bytes]:
        return list(self._world.allgather(value))

    def abort(self, code: int) -> None:
        sys.stderr.flush()
        if "_world" in self.__dict__:
            self._world.Abort(code)
        os._exit(code)


def connect_ranks(job: Job) -> GlooRanks | MpiRanks:
    """Connect the ranks of a job: with gloo for torchrun, with MPI for other launchers.

    Ranks of Slurm are connected with gloo if the environment variables MASTER_ADDR and MASTER_PORT are both set.
    """
    gloo = job.kind == "torchrun" or (job.kind == "slurm" and {"MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys())
    return (GlooRanks if gloo else MpiRanks)(job.rank, job.size)


def _destroy_process_group() -> None:
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


def make_star_sockets(size: int) -> list[list[socket.socket]]:
    """Create the sockets that each rank inherits: rank 0 gets a socket to every other rank, and vice versa."""
    pairs = [socket.socketpair() for _ in range(size - 1)]
    return [[ours for ours, _ in pairs], *([theirs] for _, theirs in pairs)]


class StarRanks:
    """Ranks on one machine, each connected to rank 0 by an inherited socket."""

    def __init__(self, rank: int, links: list[Connection]) -> None:
        self._rank, self._links = rank, links

    def barrier(self) -> None:
        if self._rank:
            self._links[0].send_bytes(b"\0")
        for link in self._links:
            link.recv_bytes()
        if self._rank == 0:
            for link in self._links:
                link.send_bytes(b"\0")

    def agree(self, value: T) -> T:
        agreed: T = pickle.loads(self._broadcast(pickle.dumps(value) if self._rank == 0 else b""))
        return agreed

    def gather(self, value: bytes) -> list[bytes]:
        """Return the values of all ranks, by rank, on every rank."""
        if self._rank:
            self._links[0].send_bytes(value)
            values = b""
        else:
            values = pickle.dumps([value, *(link.recv_bytes() for link in self._links)])
        gathered: list[bytes] = pickle.loads(self._broadcast(values))
        return gathered

    def _broadcast(self, data: bytes) -> bytes:
        if self._rank:
            return self._links[0].recv_bytes()
        for link in self._links:
            link.send_bytes(data)
        return data


class LocalGlooRanks(GlooRanks):
    """Ranks on one machine that this package started: connected by gloo, and by inherited sockets for Python objects.

    Other users of the machine reach neither: the store of the rendezvous is an anonymous file that the ranks inherit,
    and objects are unpickled from the inherited sockets only. torchrun's store accepts connections of everybody.
    """

    def __init__(self, rank: int, size: int, store_fd: int, star: StarRanks) -> None:
        super().__init__(rank, size)
        self._store_fd, self._star = store_fd, star

    def _open_store(self) -> Any:
        import torch.distributed as dist

        return dist.FileStore(f"/proc/self/fd/{self._store_fd}", self._size)  # type: ignore[attr-defined]

    def agree(self, value: T) -> T:
        return self._star.agree(value)

    def gather(self, value: bytes) -> list[bytes]:
        return self._star.gather(value)
