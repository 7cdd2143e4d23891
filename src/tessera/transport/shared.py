"""Between ranks on one host: every border is copied once, straight out of the neighbour's memory.

What can be sent lies in memory that all ranks of the host map. It has no name in any file system, so that nothing
stays behind whoever is killed. One-byte messages say "ready" and "taken": MPI waits well with a core to itself and
gives way where ranks outnumber cores, which a spin of our own would have to learn.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tessera.errors import TesseraError
from tessera.transport.mpi import MpiTransport
from tessera.transport.transport import Connection, Strip

CHUNK = 1 << 26  # bytes mapped at a time; pages that nobody writes cost nothing
ALIGNMENT = 4096


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a strip lies in its rank's shared memory."""

    chunk: int
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class SharedTransport(MpiTransport):
    """MPI's ranks on one host, with the data in shared memory."""

    name = "shared"

    def __init__(self) -> None:
        super().__init__()
        node = self.comm.Split_type(self.mpi.COMM_TYPE_SHARED)
        together = node.size == self.size
        node.Free()
        if not together:
            raise TesseraError(
                "shared memory joins the ranks of one host", got="ranks on several", do="use --transport mpi"
            )
        self._chunks: list[list[mmap.mmap]] = []  # by rank
        self._free, self._room = 0, 0

    def empty(self, count: int, dtype: torch.dtype) -> Tensor:
        size = max(1, count) * dtype.itemsize
        size = self.comm.allreduce(size, self.mpi.MAX)  # in step on all ranks: places are the same everywhere
        size += -size % ALIGNMENT
        if size > self._room:
            self._grow(max(size, CHUNK))
        found = torch.frombuffer(self._chunks[-1][self.rank], dtype=dtype, count=max(1, count), offset=self._free)
        self._free, self._room = self._free + size, self._room - size
        return found[:count]

    def _grow(self, size: int) -> None:
        """A new piece of memory of every rank, mapped by all; its descriptor is closed at once."""
        handle = os.memfd_create("tessera", os.MFD_CLOEXEC)
        try:
            os.ftruncate(handle, size)
            paths = self.comm.allgather(f"/proc/{os.getpid()}/fd/{handle}")
            maps = []
            for path in paths:
                peer = os.open(path, os.O_RDWR | os.O_CLOEXEC)
                try:
                    maps.append(mmap.mmap(peer, size))
                finally:
                    os.close(peer)
            self.comm.Barrier()
        finally:
            os.close(handle)
        self._chunks.append(maps)
        self._free, self._room = 0, size

    def connect(self, sends: Sequence[Strip], receives: Sequence[Strip]) -> Connection:
        offers: list[list[_Place]] = [[] for _ in range(self.size)]
        for strip in sends:
            offers[strip.peer].append(self._place(strip.tensor))
        offered = {peer: iter(places) for peer, places in enumerate(self.comm.alltoall(offers))}
        copies = []
        for strip in receives:
            place = next(offered[strip.peer])
            whole = torch.frombuffer(self._chunks[place.chunk][strip.peer], dtype=strip.tensor.dtype)
            source = whole.as_strided(place.shape, place.stride, place.offset)
            copies.append(joined_dims(strip.tensor, source))
        readers, read = (sorted({strip.peer for strip in strips}) for strips in (sends, receives))
        return _SharedConnection(self, readers, read, copies)

    def _place(self, tensor: Tensor) -> _Place:
        for number, maps in enumerate(self._chunks):
            start = torch.frombuffer(maps[self.rank], dtype=torch.uint8).data_ptr()
            if start <= tensor.data_ptr() < start + len(maps[self.rank]):
                offset = (tensor.data_ptr() - start) // tensor.itemsize
                return _Place(number, offset, tuple(tensor.shape), tensor.stride())
        raise TesseraError("only memory of the transport can be sent", do="make it with `transport.empty`")


class _SharedConnection:
    """`ready` goes to who reads here, `taken` back to who was read."""

    def __init__(
        self, transport: SharedTransport, readers: list[int], read: list[int], copies: list[tuple[Tensor, Tensor]]
    ) -> None:
        mpi, comm = transport.mpi, transport.comm
        self._start, self._wait = mpi.Prequest.Startall, mpi.Request.Waitall
        ready, taken = transport.next_tag(), transport.next_tag()
        room = (bytearray(1) for _ in range(2 * (len(readers) + len(read))))
        self._ready = [comm.Recv_init(next(room), peer, ready) for peer in read]
        self._ready += [comm.Send_init(next(room), peer, ready) for peer in readers]
        self._taken = [comm.Recv_init(next(room), peer, taken) for peer in readers]
        self._taken += [comm.Send_init(next(room), peer, taken) for peer in read]
        transport.keep(self._ready + self._taken)
        self._copies, self._unsettled = copies, False

    def settle(self) -> None:
        if self._unsettled:
            self._wait(self._taken)
            self._unsettled = False

    def start(self) -> None:
        self.settle()
        self._start(self._ready)

    def finish(self) -> None:
        self._wait(self._ready)
        for target, source in self._copies:
            target.copy_(source)
        self._start(self._taken)
        self._unsettled = True


def joined_dims(target: Tensor, source: Tensor) -> tuple[Tensor, Tensor]:
    """The same two views with as few dims as their strides allow: a copy then finds its long rows at once."""
    shape, strides = [1], [(1, 1)]
    for size, a, b in zip(target.shape, target.stride(), source.stride(), strict=True):
        if size == 1:
            continue
        if shape[-1] == 1:
            shape[-1], strides[-1] = size, (a, b)
        elif strides[-1] == (size * a, size * b):
            shape[-1], strides[-1] = shape[-1] * size, (a, b)
        else:
            shape.append(size)
            strides.append((a, b))
    if 0 in target.shape:
        return target, source
    views = [
        view.as_strided(shape, [pair[side] for pair in strides], view.storage_offset())
        for side, view in enumerate((target, source))
    ]
    return views[0], views[1]
