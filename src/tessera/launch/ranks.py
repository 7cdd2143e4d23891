"""Ranks keep step through the library that connects them; it is started at first use, never on import."""

from __future__ import annotations

import atexit
import os
import sys
from functools import cached_property
from typing import Any, Protocol, TypeVar

from tessera.errors import MissingExtra, TesseraError
from tessera.launch.job import Job
from tessera.measure.sync import Sync

T = TypeVar("T")


class Ranks(Sync, Protocol):
    """Ranks that can also pass on what each of them has, and end as one."""

    def gather(self, value: bytes) -> list[bytes]:
        """Everybody's value, by rank, on every rank."""

    def abort(self, code: int) -> None:
        """End the whole job; does not return."""


class GlooRanks:
    """torch.distributed over gloo; `MASTER_ADDR` and `MASTER_PORT` say where the ranks meet."""

    def __init__(self, rank: int, size: int) -> None:
        self._rank, self._size = rank, size

    @cached_property
    def _dist(self) -> Any:
        import torch.distributed as dist

        if not dist.is_initialized():
            # gloo's threads start here, on the cores of this moment: on the rank's own alone they would wait for
            # its turns, and an exchange of 256 KB would take 3 ms instead of 0.5.
            pinned = os.sched_getaffinity(0)
            os.sched_setaffinity(0, os.sched_getaffinity(os.getppid()))
            try:
                dist.init_process_group("gloo", rank=self._rank, world_size=self._size)
            finally:
                os.sched_setaffinity(0, pinned)
            atexit.register(_leave)
        return dist

    def barrier(self) -> None:
        self._dist.barrier()

    def agree(self, value: T) -> T:
        box = [value]
        self._dist.broadcast_object_list(box, src=0)
        return box[0]

    def gather(self, value: bytes) -> list[bytes]:
        found: list[bytes] = [b""] * self._size
        self._dist.all_gather_object(found, value)
        return found

    def abort(self, code: int) -> None:
        # The agent that watches this rank ends the others.
        sys.stderr.flush()
        os._exit(code)


class MpiRanks:
    """MPI through mpi4py."""

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
                "the job's launcher and the MPI library that mpi4py loads do not belong together",
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


def ranks_of(job: Job) -> GlooRanks | MpiRanks:
    """How the ranks of a job reach one another; Slurm's meet where MASTER_ADDR says, or else through MPI."""
    gloo = job.kind == "torchrun" or (job.kind == "slurm" and {"MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys())
    return (GlooRanks if gloo else MpiRanks)(job.rank, job.size)


def _leave() -> None:
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()
