"""Between ranks on one host: every border is copied once, straight out of the neighbour's memory.

What can be sent lies in memory that the neighbours map. One-byte messages say "ready" and "taken": MPI waits well with
a core to itself and gives way where ranks outnumber cores, which a spin of our own would have to learn. Borders that
are small travel in the message itself; those that lie scattered over memory are gathered before they are read.

The messages also order memory. What a rank wrote before it sent one is seen by who has received it: MPI could not
carry a message's own bytes through shared memory otherwise, so its sending ends in a release and its receiving begins
with an acquire, on every processor; over a socket the kernel does the same. A release holds back earlier reads too,
so nobody who has been told "taken" can overwrite what is still being read.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tessera.errors import TesseraError
from tessera.transport.copying import Copy, copy_of, joined_dims
from tessera.transport.memory import Address, Memory, mapped
from tessera.transport.mpi import Messages, MpiTransport, letter
from tessera.transport.packed import parcels, peers
from tessera.transport.transport import Connection, Strip

CHUNK = 1 << 26  # bytes asked for at a time; pages that nobody writes cost nothing
ALIGNMENT = 4096
EAGER = 4000  # bytes: strips up to here travel in the message that says "ready", which takes no longer for it
LINE = 64  # bytes of a cache line


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a strip lies in its rank's shared memory; the offset counts numbers, not bytes."""

    address: Address
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class SharedTransport(MpiTransport):
    """MPI's ranks on one host, with the data in shared memory."""

    name = "shared"

    def __init__(self) -> None:
        super().__init__()
        if not on_one_host(self.comm):
            got = "ranks on several"
            raise TesseraError("shared memory joins the ranks of one host", got=got, do="use --transport mpi")
        self._chunks: list[Memory] = []
        self._free, self._room = 0, 0  # in the last of them
        self._neighbours: dict[Address, mmap.mmap] = {}
        self._connections: list[_SharedConnection] = []

    def empty(self, count: int, dtype: torch.dtype) -> Tensor:
        size = max(1, count) * dtype.itemsize
        size += -size % ALIGNMENT
        if size > self._room:
            self._chunks.append(Memory(max(size, CHUNK)))
            self._free, self._room = 0, max(size, CHUNK)
        found = self._chunks[-1].tensor(self._free, max(1, count), dtype)
        self._free, self._room = self._free + size, self._room - size
        return found[:count]

    def connect(self, sends: Sequence[Strip], receives: Sequence[Strip]) -> Connection:
        (small_out, out), (small_into, into) = _by_size(sends), _by_size(receives)
        leaving, arriving = parcels(small_out), parcels(small_into)
        pack = [copy for parcel in leaving for copy in parcel.pack]
        offers: list[list[_Place]] = [[] for _ in range(self.size)]
        for strip in out:
            offers[strip.peer].append(self._place(self._gathered(strip.tensor, pack)))
        offered = [iter(places) for places in self.comm.alltoall(offers)]
        copies = [copy_of(strip.tensor, self._view(next(offered[strip.peer]), strip.tensor.dtype)) for strip in into]
        self.comm.Barrier()  # nobody closes what another has yet to map
        readers, read = ([(peer, bytearray(1)) for peer in peers(strips)] for strips in (out, into))
        connection = _SharedConnection(
            pack=pack,
            ready=self.messages([*readers, *map(letter, leaving)], [*read, *map(letter, arriving)]),
            copies=copies + [copy for parcel in arriving for copy in parcel.unpack],
            taken=self.messages(read, readers),
        )
        self._connections.append(connection)
        return connection

    def _gathered(self, strip: Tensor, pack: list[Copy]) -> Tensor:
        """A strip, or if it lies scattered over memory a gathered copy of it.

        A reader would fetch a whole line of the cache for each of its pieces, and lines in which this rank writes its
        own borders at that.
        """
        pieces, _ = joined_dims(strip, strip)
        if pieces.stride(-1) == 1 and pieces.shape[-1] * strip.itemsize >= LINE:
            return strip
        found = self.empty(strip.numel(), strip.dtype).view(strip.shape)
        pack.append(copy_of(found, strip))
        return found

    def _place(self, tensor: Tensor) -> _Place:
        for chunk in self._chunks:
            offset = tensor.data_ptr() - chunk.start
            if 0 <= offset < chunk.address.size:
                return _Place(chunk.address, offset // tensor.itemsize, tuple(tensor.shape), tensor.stride())
        raise TesseraError("only memory of the transport can be sent", do="make it with `transport.empty`")

    def _view(self, place: _Place, dtype: torch.dtype) -> Tensor:
        """A neighbour's strip."""
        if place.address not in self._neighbours:
            self._neighbours[place.address] = mapped(place.address)
        whole = torch.frombuffer(self._neighbours[place.address], dtype=dtype)
        return whole.as_strided(place.shape, place.stride, place.offset)

    def close(self) -> None:
        super().close()
        for connection in self._connections:
            connection.forget()
        for chunk in self._chunks:
            chunk.close()
        self._connections, self._chunks, self._neighbours, self._room = [], [], {}, 0


class _SharedConnection:
    """`ready` goes to who reads here, `taken` back to who was read."""

    def __init__(self, *, pack: list[Copy], ready: Messages, copies: list[Copy], taken: Messages) -> None:
        self._pack, self._ready, self._copies, self._taken = pack, ready, copies, taken
        self._unsettled = False

    def settle(self) -> None:
        if self._unsettled:
            self._taken.wait()
            self._unsettled = False

    def start(self) -> None:
        self.settle()
        for copy in self._pack:
            copy()
        self._ready.start()

    def finish(self) -> None:
        self._ready.wait()
        for copy in self._copies:
            copy()
        self._taken.start()
        self._unsettled = True

    def forget(self) -> None:
        """Let go of the neighbours' memory."""
        self._copies = []


def _by_size(strips: Sequence[Strip]) -> tuple[list[Strip], list[Strip]]:
    """Those of peers whose strips a message can take along, and those of the others; both ends find the same."""
    room = dict.fromkeys(peers(strips), EAGER)
    for strip in strips:
        room[strip.peer] -= strip.tensor.nbytes
    return [s for s in strips if room[s.peer] >= 0], [s for s in strips if room[s.peer] < 0]


def on_one_host(comm: Any) -> bool:
    """Whether all ranks of a communicator can share memory; every rank asks, and all get the same answer."""
    from mpi4py import MPI

    together = comm.Split_type(MPI.COMM_TYPE_SHARED)
    found: bool = together.size == comm.size
    together.Free()
    return found
