"""Over MPI messages: persistent requests, made once, started every round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NoReturn

import torch
from torch import Tensor

from tessera.errors import MissingExtra, TesseraError
from tessera.transport.copying import Copy
from tessera.transport.packed import Parcel, parcels
from tessera.transport.summing import sum_in_place
from tessera.transport.transport import Connection, Strip


class MpiTransport:
    """One message per neighbour each way, between any hosts that MPI connects."""

    name = "mpi"
    _last_tag: ClassVar[int] = 0  # of all transports: what was left unfetched in a closed one meets no later one

    def __init__(self) -> None:
        try:
            from mpi4py import MPI
        except ImportError:
            raise MissingExtra("mpi4py", "mpi") from None
        self.mpi: Any = MPI
        self.comm: Any = MPI.COMM_WORLD.Dup()  # our messages meet nobody else's
        self.rank, self.size = self.comm.rank, self.comm.size
        self._messages: list[Messages] = []
        MpiTransport._last_tag = self.comm.allreduce(MpiTransport._last_tag, MPI.MAX)

    def empty(self, count: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(count, dtype=dtype)

    def connect(self, sends: Sequence[Strip], receives: Sequence[Strip]) -> Connection:
        out, into = parcels(sends), parcels(receives)
        return _MpiConnection(
            [copy for parcel in out for copy in parcel.pack],
            self.messages([letter(parcel) for parcel in out], [letter(parcel) for parcel in into]),
            [copy for parcel in into for copy in parcel.unpack],
        )

    def messages(self, out: Sequence[tuple[int, Any]], into: Sequence[tuple[int, Any]]) -> Messages:
        """What goes to peers and comes from peers, each in a buffer of its own; it is freed with the transport."""
        MpiTransport._last_tag += 1  # on every rank alike, as all connect in the same order
        tag = MpiTransport._last_tag
        requests = [self.comm.Recv_init(buffer, peer, tag) for peer, buffer in into]
        requests += [self.comm.Send_init(buffer, peer, tag) for peer, buffer in out]
        self._messages.append(Messages(requests))
        return self._messages[-1]

    def all_reduce(self, values: Tensor) -> None:
        sum_in_place(values, lambda summed: self.comm.Allreduce(self.mpi.IN_PLACE, summed.numpy()))

    def barrier(self) -> None:
        self.comm.Barrier()

    def close(self) -> None:
        for messages in self._messages:
            messages.close()
        self._messages = []
        if self.comm:
            self.comm.Free()


def letter(parcel: Parcel) -> tuple[int, Any]:
    """Whom a parcel goes to or comes from, and its bytes as MPI takes them."""
    return parcel.peer, parcel.bytes.numpy()


class Messages:
    """Persistent requests, started and awaited together.

    One by one: that takes less time than the calls for many at once, which convert their list every time.
    """

    def __init__(self, requests: list[Any]) -> None:
        self._requests = requests
        self._starts: list[Callable[[], object]] = [request.Start for request in requests]
        self._waits: list[Callable[[], object]] = [request.Wait for request in requests]

    def start(self) -> None:
        for start in self._starts:
            start()

    def wait(self) -> None:
        for wait in self._waits:
            wait()

    def close(self) -> None:
        """Free them, whether they have arrived or not."""
        for request in self._requests:
            if not request.Test():
                request.Cancel()
            request.Free()
        self._requests, self._starts, self._waits = [], [_closed], [_closed]


def _closed() -> NoReturn:
    raise TesseraError("an exchange ends with its transport", got="a closed one", do="open another, make it anew")


class _MpiConnection:
    def __init__(self, pack: list[Copy], messages: Messages, unpack: list[Copy]) -> None:
        self._pack, self._messages, self._unpack = pack, messages, unpack

    def settle(self) -> None:
        """What was sent has left with `finish`."""

    def start(self) -> None:
        for copy in self._pack:
            copy()
        self._messages.start()

    def finish(self) -> None:
        self._messages.wait()
        for copy in self._unpack:
            copy()
