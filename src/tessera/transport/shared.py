"""The transport over shared memory of one host: every border is copied once, directly from the neighbour's memory.

Sent strips are in memory that the neighbours map. One-byte MPI messages signal "ready" (the sender has written) and
"taken" (the receiver has read). MPI spins if each rank has a core, and yields if there are more ranks than cores. Small
borders, and borders for ranks of other hosts, are sent inside the message. Borders that are scattered over memory are
copied to a contiguous buffer first.

The messages also order memory accesses. A rank that receives a message sees everything that the sender wrote before:
sending ends with a release and receiving begins with an acquire, on every processor, because MPI carries the bytes of
its own messages through shared memory in the same way; over a socket the kernel orders them. A release also orders
earlier reads, so a rank that received "taken" cannot overwrite a strip that is still being read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tessera.errors import TesseraError
from tessera.transport.mpi import MpiTransport, PersistentMessages, to_message
from tessera.transport.packing import Copy, list_peers, pack_by_peer, prepare_copy
from tessera.transport.shared_arena import SharedArena, StripAddress
from tessera.transport.transport import Connection, Strip, TransportTraits

EAGER_BYTES = 4000  # strips up to this size are sent inside the "ready" message, without extra time


class SharedTransport(MpiTransport):
    """MPI ranks, with the data in shared memory between ranks of one host."""

    name = "shared"
    traits = TransportTraits(messages="mpi", copies_from_peer=True, shares_memory=True)

    def __init__(self) -> None:
        super().__init__()
        self._host_ranks = list_host_ranks(self.comm)
        sizes = self.comm.allgather(len(self._host_ranks))
        if max(sizes) == 1:
            self.comm.Free()
            raise TesseraError(
                "no two ranks share memory", got=f"{self.size} ranks on as many hosts", do="use --transport mpi"
            )
        if min(sizes) < self.size:
            self.name, self.traits = "shared+mpi", TransportTraits(messages="mpi", shares_memory=True)
        self._arena = SharedArena()
        self._connections: set[_SharedConnection] = set()

    def empty(self, count: int, dtype: torch.dtype) -> Tensor:
        return self._arena.allocate(count, dtype)

    def free(self, memory: Tensor) -> None:
        self._arena.free(memory)

    def connect(self, sends: Sequence[Strip], receives: Sequence[Strip]) -> Connection:
        (small_sends, large_sends), (small_receives, large_receives) = map(self._split_strips, (sends, receives))
        leaving, arriving = pack_by_peer(small_sends), pack_by_peer(small_receives)
        pack = [copy for packed in leaving for copy in packed.pack]
        offers: list[list[StripAddress]] = [[] for _ in range(self.size)]
        gathered = [self._arena.gather_strip(strip.tensor, pack) for strip in large_sends]
        for strip, tensor in zip(large_sends, gathered, strict=True):
            offers[strip.peer].append(self._arena.locate(tensor))
        offered = [iter(places) for places in self.comm.alltoall(offers)]
        copies = [
            prepare_copy(strip.tensor, self._arena.map_strip(next(offered[strip.peer]), strip.tensor.dtype))
            for strip in large_receives
        ]
        self.comm.Barrier()  # a rank must not close memory before all other ranks have mapped it
        readers = [(peer, bytearray(1)) for peer in list_peers(large_sends)]
        read = [(peer, bytearray(1)) for peer in list_peers(large_receives)]
        ready = self.open_messages([*readers, *map(to_message, leaving)], [*read, *map(to_message, arriving)])
        taken = self.open_messages(read, readers)

        def close(connection: _SharedConnection) -> None:
            self._connections.discard(connection)
            self.close_messages(ready, taken)
            self._arena.free_gathered([strip.tensor for strip in large_sends], gathered)

        connection = _SharedConnection(
            pack=pack,
            ready=ready,
            copies=copies + [copy for packed in arriving for copy in packed.unpack],
            taken=taken,
            close=close,
        )
        self._connections.add(connection)
        return connection

    def _split_strips(self, strips: Sequence[Strip]) -> tuple[list[Strip], list[Strip]]:
        """Split strips into strips sent inside a message, and strips copied from memory. Both ends agree."""
        free = {peer: EAGER_BYTES if peer in self._host_ranks else sys.maxsize for peer in list_peers(strips)}
        for strip in strips:
            free[strip.peer] -= strip.tensor.nbytes
        return [s for s in strips if free[s.peer] >= 0], [s for s in strips if free[s.peer] < 0]

    def close(self) -> None:
        super().close()
        for connection in self._connections:
            connection.release_memory()
        self._arena.close()
        self._connections.clear()


class _SharedConnection:
    """A connection through mapped memory. Writers send `ready` to readers; readers send `taken` back after the copy."""

    def __init__(
        self,
        *,
        pack: list[Copy],
        ready: PersistentMessages,
        copies: list[Copy],
        taken: PersistentMessages,
        close: Callable[[_SharedConnection], None],
    ) -> None:
        self._pack, self._ready, self._copies, self._taken, self._close = pack, ready, copies, taken, close
        self._unconfirmed = False

    def wait_until_sent(self) -> None:
        if self._unconfirmed:
            self._taken.wait()
            self._unconfirmed = False

    def start(self) -> None:
        self.wait_until_sent()
        for copy in self._pack:
            copy()
        self._ready.start()

    def finish(self) -> None:
        self._ready.wait()
        for copy in self._copies:
            copy()
        self._taken.start()
        self._unconfirmed = True

    def close(self) -> None:
        self.wait_until_sent()
        self._close(self)
        self.release_memory()

    def release_memory(self) -> None:
        """Drop all views of the neighbours' memory."""
        self._copies = []


def list_host_ranks(comm: Any) -> list[int]:
    """Return the ranks of a communicator that are on this rank's host. All ranks call it."""
    from mpi4py import MPI

    together = comm.Split_type(MPI.COMM_TYPE_SHARED)
    ranks: list[int] = together.allgather(comm.rank)
    together.Free()
    return ranks
