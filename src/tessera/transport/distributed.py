"""Over torch.distributed: gloo here, and the same calls on NCCL."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor

from tessera.errors import TesseraError
from tessera.transport.in_process import alone
from tessera.transport.packed import parcels
from tessera.transport.summing import sum_in_place
from tessera.transport.transport import Connection, Strip, Transport

_of_groups: WeakKeyDictionary[Any, Transport] = WeakKeyDictionary()
_lone = cache(alone)


def world(ranks: int) -> Transport:
    """The transport of the process group that a program has initialised itself; a single rank needs none.

    Asked again, it is the same: exchanges are kept by their transport.
    """
    if ranks == 1:
        return _lone()
    if not (dist.is_available() and dist.is_initialized()):
        raise TesseraError(
            "the ranks are not connected",
            do="start with torchrun and call torch.distributed.init_process_group('gloo'), or give a transport",
        )
    return _of_groups.setdefault(dist.group.WORLD, DistributedTransport())


class DistributedTransport:
    """One message per neighbour each way; gloo's own threads carry them while this rank computes.

    The process group is there already and belongs to who made it; the transport is named after its backend.
    """

    def __init__(self) -> None:
        self.rank, self.size, self.name = dist.get_rank(), dist.get_world_size(), str(dist.get_backend())
        self._device = torch.device("cuda" if self.name == "nccl" else "cpu")

    def empty(self, count: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(count, dtype=dtype, device=self._device)

    def connect(self, sends: Sequence[Strip], receives: Sequence[Strip]) -> Connection:
        return _DistributedConnection(sends, receives)

    def all_reduce(self, values: Tensor) -> None:
        sum_in_place(values, dist.all_reduce)

    def barrier(self) -> None:
        dist.barrier()

    def close(self) -> None:
        """Nothing is held."""


class _DistributedConnection:
    def __init__(self, sends: Sequence[Strip], receives: Sequence[Strip]) -> None:
        out, into = parcels(sends), parcels(receives)
        self._pack = [copy for parcel in out for copy in parcel.pack]
        self._unpack = [copy for parcel in into for copy in parcel.unpack]
        self._messages = [dist.P2POp(dist.irecv, parcel.bytes, parcel.peer) for parcel in into]
        self._messages += [dist.P2POp(dist.isend, parcel.bytes, parcel.peer) for parcel in out]
        self._under_way: list[dist.Work] = []

    def settle(self) -> None:
        """What was sent has left with `finish`."""

    def start(self) -> None:
        for copy in self._pack:
            copy()
        if self._messages:  # in one batch, which on NCCL is what keeps two neighbours from waiting for each other
            self._under_way = dist.batch_isend_irecv(self._messages)

    def finish(self) -> None:
        for work in self._under_way:
            work.wait()
        self._under_way = []
        for copy in self._unpack:
            copy()
