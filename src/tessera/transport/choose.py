"""The transports by name: what each is, which ranks it joins, whether it can be used here, and the fastest there is."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tessera.errors import TesseraError
from tessera.launch.config import Spawn
from tessera.launch.spawns import launchers
from tessera.launch.worker import Worker

if TYPE_CHECKING:
    from tessera.transport.transport import Transport


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A transport as it can be listed: `spawn` starts the ranks that it joins."""

    title: str
    spawn: Spawn | None


AUTO = "auto"
TRANSPORTS = {
    AUTO: Entry(title="the fastest that the ranks have", spawn=None),
    "shared": Entry(title="MPI's ranks on one host: every border copied once, out of shared memory", spawn="mpiexec"),
    "mpi": Entry(title="MPI messages, on one host or many", spawn="mpiexec"),
    "gloo": Entry(title="torch.distributed, on one host or many; over NCCL where its group is", spawn="torchrun"),
}


class Usable(NamedTuple):
    """A transport, what it is, whether it can be used here, and with which ranks, or why not."""

    name: str
    title: str
    usable: bool
    how: str


def spawn_of(name: str) -> Spawn:
    """What has to start the ranks of a transport."""
    found = _entry(name).spawn
    if found is not None:
        return found
    return "mpiexec" if any(way.usable for way in launchers() if way.name == "mpiexec") else "torchrun"


def usable() -> list[Usable]:
    """Every transport, and whether ranks of this interpreter can use it."""
    ways = {way.name: way for way in launchers()}
    found = []
    for name, entry in TRANSPORTS.items():
        spawn = spawn_of(name)
        works, how = ways[spawn].usable, f"ranks of {spawn}" if ways[spawn].usable else ways[spawn].how
        if name == "shared" and works and not hasattr(os, "memfd_create"):
            works, how = False, f"{sys.platform} has no memory without a name; use mpi"
        found.append(Usable(name, entry.title, works, how))
    return found


def open_transport(name: str, worker: Worker) -> Transport:
    """The transport of this rank; every rank opens the same. A single worker needs none and gets one in its process."""
    entry = _entry(name)
    if worker.size == 1:
        from tessera.transport.in_process import alone

        return alone()
    having = [other for other, known in TRANSPORTS.items() if known.spawn == worker.spawn]
    if not having:
        raise TesseraError(
            "these workers are not connected",
            got=f"{worker.size} workers of {worker.spawn}",
            allowed="ranks of torchrun or mpiexec",
        )
    if entry.spawn not in (None, worker.spawn):
        raise TesseraError(
            f"ranks of {worker.spawn} have no such transport",
            got=name,
            allowed=[AUTO, *having],
            do=f"for {name}, start them with {entry.spawn}",
        )
    worker.join()
    if worker.spawn == "torchrun":
        from tessera.transport.distributed import DistributedTransport

        return DistributedTransport()
    from mpi4py import MPI

    from tessera.transport.mpi import MpiTransport
    from tessera.transport.shared import SharedTransport, on_one_host

    if name == AUTO:
        name = "shared" if hasattr(os, "memfd_create") and on_one_host(MPI.COMM_WORLD) else "mpi"
    return SharedTransport() if name == "shared" else MpiTransport()


def _entry(name: str) -> Entry:
    if name not in TRANSPORTS:
        raise TesseraError("unknown transport", got=name, allowed=TRANSPORTS)
    return TRANSPORTS[name]
