"""Over MPI messages: persistent requests, made once, started every round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tessera.errors import MissingExtra
from tessera.transport.packed import parcels
from tessera.transport.transport import Connection, Strip

SUMMED = (torch.float32, torch.float64, torch.int32, torch.int64)  # MPI adds these; others go through float32


class MpiTransport:
    """One message per neighbour each way, between any hosts that MPI connects."""

    name = "mpi"

    def __init__(self) -> None:
        try:
            from mpi4py import MPI
        except ImportError:
            raise MissingExtra("mpi4py", "mpi") from None
        self.mpi: Any = MPI
        self.comm: Any = MPI.COMM_WORLD.Dup()  # our messages meet nobody else's
        self.rank, self.size = self.comm.rank, self.comm.size
        self._tag = 0
        self._requests: list[Any] = []

    def empty(self, count: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(count, dtype=dtype)

    def connect(self, sends: Sequence[Strip], receives: Sequence[Strip]) -> Connection:
        out, into, tag = parcels(sends), parcels(receives), self.next_tag()
        requests = [self.comm.Recv_init(parcel.bytes.numpy(), parcel.peer, tag) for parcel in into]
        requests += [self.comm.Send_init(parcel.bytes.numpy(), parcel.peer, tag) for parcel in out]
        return _MpiConnection(self.mpi, out, into, self.keep(requests))

    def next_tag(self) -> int:
        self._tag += 1
        return self._tag

    def keep(self, requests: list[Any]) -> list[Any]:
        """Requests that are freed with the transport."""
        self._requests += requests
        return requests

    def all_reduce(self, values: Tensor) -> None:
        if values.dtype in SUMMED:
            self.comm.Allreduce(self.mpi.IN_PLACE, values.numpy())
        else:
            wide = values.to(torch.float32)
            self.comm.Allreduce(self.mpi.IN_PLACE, wide.numpy())
            values.copy_(wide)

    def barrier(self) -> None:
        self.comm.Barrier()

    def close(self) -> None:
        for request in self._requests:
            request.Free()
        self._requests = []
        self.comm.Free()


class _MpiConnection:
    def __init__(self, mpi: Any, out: list[Any], into: list[Any], requests: list[Any]) -> None:
        self._out, self._in, self._requests = out, into, requests
        self._start, self._wait = mpi.Prequest.Startall, mpi.Request.Waitall

    def settle(self) -> None:
        """What was sent has left with `finish`."""

    def start(self) -> None:
        for parcel in self._out:
            parcel.pack()
        self._start(self._requests)

    def finish(self) -> None:
        self._wait(self._requests)
        for parcel in self._in:
            parcel.unpack()
