"""The transport over MPI messages: persistent requests that are created once and started every round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, NoReturn

import torch
from torch import Tensor

from tessera.errors import MissingExtra, TesseraError
from tessera.transport.all_reduce import sum_in_place
from tessera.transport.packing import Copy, PackedMessage, pack_by_peer
from tessera.transport.transport import Connection, Strip, TransportTraits


class MpiTransport:
    """The MPI transport: one message per neighbour and direction, between any hosts that MPI connects."""

    name = "mpi"
    traits = TransportTraits(messages="mpi")
    _last_tag: ClassVar[int] = 0  # counted over all transports: messages of a closed transport cannot reach a later one

    def __init__(self) -> None:
        try:
            from mpi4py import MPI
        except ImportError:
            raise MissingExtra("mpi4py", "mpi") from None
        self.mpi: Any = MPI
        self.comm: Any = MPI.COMM_WORLD.Dup()  # separates our messages from the messages of other libraries
        self.rank, self.size = self.comm.rank, self.comm.size
        self._messages: set[PersistentMessages] = set()
        MpiTransport._last_tag = self.comm.allreduce(MpiTransport._last_tag, MPI.MAX)

    def empty(self, count: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(count, dtype=dtype)

    def free(self, memory: Tensor) -> None:
        """Do nothing: the memory is released with its last reference."""

    def connect(self, sends: Sequence[Strip], receives: Sequence[Strip]) -> Connection:
        out, into = pack_by_peer(sends), pack_by_peer(receives)
        messages = self.open_messages([to_message(packed) for packed in out], [to_message(packed) for packed in into])
        return _MpiConnection(
            [copy for packed in out for copy in packed.pack],
            messages,
            [copy for packed in into for copy in packed.unpack],
            partial(self.close_messages, messages),
        )

    def open_messages(self, out: Sequence[tuple[int, Any]], into: Sequence[tuple[int, Any]]) -> PersistentMessages:
        """Create persistent messages from (peer, buffer) pairs; they are freed with the transport."""
        MpiTransport._last_tag += 1  # the same on every rank, because all ranks connect in the same order
        tag = MpiTransport._last_tag
        requests = [self.comm.Recv_init(buffer, peer, tag) for peer, buffer in into]
        requests += [self.comm.Send_init(buffer, peer, tag) for peer, buffer in out]
        messages = PersistentMessages(requests)
        self._messages.add(messages)
        return messages

    def close_messages(self, *messages: PersistentMessages) -> None:
        """Free messages before the transport is closed. Their rounds must be complete."""
        for opened in messages:
            opened.close()
            self._messages.discard(opened)

    def all_reduce(self, values: Tensor) -> None:
        sum_in_place(values, lambda total: self.comm.Allreduce(self.mpi.IN_PLACE, total.numpy()))

    def barrier(self) -> None:
        self.comm.Barrier()

    def close(self) -> None:
        for messages in self._messages:
            messages.close()
        self._messages.clear()
        if self.comm:
            self.comm.Free()


def to_message(packed: PackedMessage) -> tuple[int, Any]:
    """Return the peer of a packed message, and its bytes in a form that MPI accepts."""
    return packed.peer, packed.bytes.numpy()


class PersistentMessages:
    """Persistent requests that are started and awaited together.

    Requests are started one by one: mpi4py's calls for many requests convert the list every time, which is slower.
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
        """Free all requests, whether complete or not."""
        for request in self._requests:
            if not request.Test():
                request.Cancel()
            request.Free()
        self._requests, self._starts, self._waits = [], [_raise_closed], [_raise_closed]


def _raise_closed() -> NoReturn:
    raise TesseraError("the transport of this exchange is closed", do="open a transport and make a new exchange")


class _MpiConnection:
    def __init__(
        self, pack: list[Copy], messages: PersistentMessages, unpack: list[Copy], close: Callable[[], None]
    ) -> None:
        self._pack, self._messages, self._unpack, self.close = pack, messages, unpack, close

    def wait_until_sent(self) -> None:
        """Do nothing: `finish` has waited for the sends."""

    def start(self) -> None:
        for copy in self._pack:
            copy()
        self._messages.start()

    def finish(self) -> None:
        self._messages.wait()
        for copy in self._unpack:
            copy()
