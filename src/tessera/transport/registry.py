"""The registry of transports: title and launcher of each transport, and whether this machine supports it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tessera.errors import TesseraError
from tessera.launch.commands import list_launchers
from tessera.launch.config import SpawnMethod
from tessera.launch.worker import Worker

if TYPE_CHECKING:
    from tessera.transport.transport import Transport


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportEntry:
    """A registered transport. `spawn` is the launcher of its ranks (None: any); `open` opens it on a connected rank.

    `supports_ranks` returns whether all connected ranks can use the transport. `requires_memfd`: the operating system
    must support anonymous shared memory.
    """

    title: str
    spawn: SpawnMethod | None
    open: Callable[[Worker], Transport]
    supports_ranks: Callable[[], bool] = lambda: True
    requires_memfd: bool = False


def _open_fastest(worker: Worker) -> Transport:
    return next(entry for entry in _find_entries(worker.spawn).values() if entry.supports_ranks()).open(worker)


def _open_shared(_worker: Worker) -> Transport:
    from tessera.transport.shared import SharedTransport

    return SharedTransport()


def _open_mpi(_worker: Worker) -> Transport:
    from tessera.transport.mpi import MpiTransport

    return MpiTransport()


def _open_distributed(_worker: Worker) -> Transport:
    from tessera.transport.distributed import DistributedTransport

    return DistributedTransport()


def _open_host(_worker: Worker) -> Transport:
    from tessera.transport.distributed import DistributedTransport
    from tessera.transport.mixed import open_fastest

    transport = open_fastest()
    if type(transport) is DistributedTransport:
        raise TesseraError(
            "no two ranks share memory",
            got=f"{transport.size} ranks on as many hosts, or in separate containers",
            do="use --transport gloo",
        )
    return transport


def _share_hosts() -> bool:
    from tessera.transport.mixed import find_hosts, shares_memory

    return shares_memory(find_hosts())


def _can_share_memory() -> bool:
    from mpi4py import MPI

    from tessera.transport.shared import list_host_ranks

    return _has_memfd() and any(len(ranks) > 1 for ranks in MPI.COMM_WORLD.allgather(list_host_ranks(MPI.COMM_WORLD)))


def _has_memfd() -> bool:
    return hasattr(os, "memfd_create")


AUTO = "auto"
TRANSPORTS = {  # for each launcher, the fastest transport comes first
    AUTO: TransportEntry(title="the fastest transport that the ranks support", spawn=None, open=_open_fastest),
    "shared": TransportEntry(
        title="MPI ranks: every border copied once, out of shared memory; MPI messages between hosts",
        spawn="mpiexec",
        open=_open_shared,
        supports_ranks=_can_share_memory,
        requires_memfd=True,
    ),
    "mpi": TransportEntry(title="MPI messages, on one host or several", spawn="mpiexec", open=_open_mpi),
    "shm": TransportEntry(
        title="torch.distributed ranks: every border copied once, out of shared memory; gloo between hosts",
        spawn="torchrun",
        open=_open_host,
        supports_ranks=_share_hosts,
        requires_memfd=True,
    ),
    "gloo": TransportEntry(
        title="torch.distributed, on one host or several; over NCCL if its process group uses NCCL",
        spawn="torchrun",
        open=_open_distributed,
    ),
}


class TransportStatus(NamedTuple):
    """The status of a transport on this machine: whether it can be used, its launcher, or the reason why not."""

    name: str
    title: str
    usable: bool
    detail: str


def get_spawn(name: str) -> SpawnMethod:
    """Return the launcher that starts the ranks of a transport."""
    spawn = _get_entry(name).spawn
    if spawn is not None:
        return spawn
    return (
        "mpiexec" if any(launcher.usable for launcher in list_launchers() if launcher.name == "mpiexec") else "torchrun"
    )


def list_transports() -> list[TransportStatus]:
    """Return the status of every transport for ranks that run this Python interpreter."""
    by_name = {launcher.name: launcher for launcher in list_launchers()}
    statuses = []
    for name, entry in TRANSPORTS.items():
        launcher = by_name[get_spawn(name)]
        usable, detail = launcher.usable, f"ranks of {launcher.name}" if launcher.usable else launcher.description
        if usable and entry.requires_memfd and not _has_memfd():
            usable, detail = False, f"{sys.platform} has no anonymous shared memory (memfd_create); use mpi"
        statuses.append(TransportStatus(name, entry.title, usable, detail))
    return statuses


def open_transport(name: str, worker: Worker) -> Transport:
    """Open a transport on this rank; all ranks pass the same name. A single worker gets an in-process transport."""
    entry = _get_entry(name)
    if worker.size == 1:
        from tessera.transport.in_process import open_single_rank

        return open_single_rank()
    entries = _find_entries(worker.spawn)
    if not entries:
        raise TesseraError(
            "these workers are not connected",
            got=f"{worker.size} workers of {worker.spawn}",
            allowed="ranks of torchrun or mpiexec",
        )
    if entry.spawn not in (None, worker.spawn):
        raise TesseraError(
            f"the transport is not supported by ranks of {worker.spawn}",
            got=name,
            allowed=[AUTO, *entries],
            do=f"for {name}, start the ranks with {entry.spawn}",
        )
    worker.connect()
    return entry.open(worker)


def _find_entries(spawn: SpawnMethod) -> dict[str, TransportEntry]:
    """Return the transports that connect ranks of a launcher, fastest first."""
    return {name: entry for name, entry in TRANSPORTS.items() if entry.spawn == spawn}


def _get_entry(name: str) -> TransportEntry:
    if name not in TRANSPORTS:
        raise TesseraError("unknown transport", got=name, allowed=TRANSPORTS)
    return TRANSPORTS[name]
