"""Over torch.distributed: gloo here, and the same calls on NCCL."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from tessera.transport.packed import parcels
from tessera.transport.transport import Connection, Strip


class DistributedTransport:
    """One message per neighbour each way; gloo's own threads carry them while this rank computes."""

    name = "gloo"

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def empty(self, count: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(count, dtype=dtype)

    def connect(self, sends: Sequence[Strip], receives: Sequence[Strip]) -> Connection:
        return _DistributedConnection(sends, receives)

    def all_reduce(self, values: Tensor) -> None:
        if self.size > 1:
            dist.all_reduce(values)

    def barrier(self) -> None:
        dist.barrier()

    def close(self) -> None:
        """The process group belongs to who made it."""


class _DistributedConnection:
    def __init__(self, sends: Sequence[Strip], receives: Sequence[Strip]) -> None:
        self._out, self._in = parcels(sends), parcels(receives)
        self._requests: list[dist.Work] = []

    def settle(self) -> None:
        """What was sent has left with `finish`."""

    def start(self) -> None:
        requests = [dist.irecv(parcel.bytes, parcel.peer) for parcel in self._in]
        for parcel in self._out:
            parcel.pack()
            requests.append(dist.isend(parcel.bytes, parcel.peer))
        self._requests = [request for request in requests if request is not None]

    def finish(self) -> None:
        for request in self._requests:
            request.wait()
        self._requests = []
        for parcel in self._in:
            parcel.unpack()
