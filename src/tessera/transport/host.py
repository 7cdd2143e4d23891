"""The transport of torch.distributed ranks on one host: borders are copied once, directly from a peer's memory.

Ranks signal with counters in shared memory instead of messages: a sender increments its counter "ready" when its
strips are written, a receiver increments "taken" when it has copied the strips. Strip addresses are exchanged once per
connection, as integers, through the process group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from tessera.errors import TesseraError
from tessera.transport.all_reduce import SUM_TYPES, sum_in_place
from tessera.transport.counters import COUNTER_WORDS, Counter, CounterWait
from tessera.transport.distributed import DistributedTransport
from tessera.transport.packing import Copy, list_peers, prepare_copy
from tessera.transport.shared_arena import SharedArena, StripAddress
from tessera.transport.shared_memory import SharedMemoryAddress
from tessera.transport.transport import Connection, Strip, TransportTraits

SUM_BYTES = 1 << 18  # bytes per step of an all-reduce
READY, TAKEN = 0, 1  # kinds of counters of a connection; each rank has one of each kind per peer


class HostTransport(DistributedTransport):
    """Ranks of torch.distributed on one host, with the data in shared memory.

    `host_ranks` lists the ranks of the group on this host (default: all). Only these ranks share memory; all ranks of
    the group make the same calls.
    """

    def __init__(self, group: dist.ProcessGroup | None = None, host_ranks: Sequence[int] = ()) -> None:
        super().__init__(group)
        self.name = "shm"
        self.traits = TransportTraits(messages=self.traits.messages, copies_from_peer=True, shares_memory=True)
        self._host_ranks = tuple(host_ranks) or tuple(range(self.size))
        self._arena = SharedArena()
        self._connections: set[_HostConnection] = set()
        arrived = self._arena.allocate(COUNTER_WORDS, torch.int64).zero_()
        buffers = self._arena.allocate(2 * SUM_BYTES, torch.uint8)
        addresses = self._exchange_strip_addresses([self._arena.locate(arrived), self._arena.locate(buffers)])
        self._wait = CounterWait(
            {rank: int(Path(addresses[rank][0].address.path).parts[2]) for rank in self._host_ranks},
            _get_time_limit(group),
        )
        self._arrived = {
            rank: Counter(arrived if rank == self.rank else self._arena.map_strip(addresses[rank][0], torch.int64))
            for rank in self._host_ranks
        }
        self._buffers = {
            rank: buffers if rank == self.rank else self._arena.map_strip(addresses[rank][1], torch.uint8)
            for rank in self._host_ranks
        }
        self._barriers = 0  # barriers on this host so far, including the barriers of all-reduces
        self._barrier_on_host()  # a rank must not close memory before all other ranks have mapped it

    def empty(self, count: int, dtype: torch.dtype) -> Tensor:
        return self._arena.allocate(count, dtype)

    def free(self, memory: Tensor) -> None:
        self._arena.free(memory)

    def connect(self, sends: Sequence[Strip], receives: Sequence[Strip]) -> Connection:
        sends, receives = ([strip for strip in strips if strip.tensor.numel()] for strips in (sends, receives))
        pack: list[Copy] = []
        strips = [self._arena.gather_strip(strip.tensor, pack) for strip in sends]
        counters = self._arena.allocate(2 * self.size * COUNTER_WORDS, torch.int64).zero_()
        located = [self._arena.locate(tensor) for tensor in strips]
        tables = self._exchange_strip_addresses(
            [self._arena.locate(counters), *located], [-1, *(strip.peer for strip in sends)]
        )
        copies: dict[int, list[Copy]] = {}
        offered = {peer: iter(table[1:]) for peer, table in enumerate(tables)}
        for strip in receives:
            source = self._arena.map_strip(next(offered[strip.peer]), strip.tensor.dtype)
            copies.setdefault(strip.peer, []).append(prepare_copy(strip.tensor, source))
        counters_by_rank = {
            peer: counters if peer == self.rank else self._arena.map_strip(tables[peer][0], torch.int64)
            for peer in {self.rank, *copies, *list_peers(sends)}
        }

        def get_counter(kind: int, owner: int, peer: int) -> Counter:
            return Counter(counters_by_rank[owner].view(2, self.size, COUNTER_WORDS)[kind, peer])

        def close(connection: _HostConnection) -> None:
            self._connections.discard(connection)
            self._arena.free(counters)
            self._arena.free_gathered([strip.tensor for strip in sends], strips)

        connection = _HostConnection(
            wait=self._wait,
            close=close,
            pack=pack,
            ready=[get_counter(READY, self.rank, peer) for peer in list_peers(sends)],
            confirmed=[(peer, get_counter(TAKEN, peer, self.rank)) for peer in list_peers(sends)],
            receives=[
                (peer, get_counter(READY, peer, self.rank), peer_copies, get_counter(TAKEN, self.rank, peer))
                for peer, peer_copies in copies.items()
            ],
        )
        self._connections.add(connection)
        self._barrier_on_host()  # a rank must not close memory before all other ranks have mapped it
        return connection

    def _exchange_strip_addresses(
        self, strips: Sequence[StripAddress], peers: Sequence[int] | None = None
    ) -> list[list[StripAddress]]:
        """Return the addresses of the strips that each rank offers to this rank; peer -1 means all ranks."""
        peers = peers or [-1] * len(strips)
        words = [word for peer, strip in zip(peers, strips, strict=True) for word in _encode(peer, strip)]
        counts = torch.zeros(self.size, dtype=torch.int64)
        counts[self.rank] = len(words)
        dist.all_reduce(counts, group=self._group)
        table = torch.zeros(int(counts.sum()), dtype=torch.int64)
        starts = [0, *accumulate(counts.tolist())]
        table[starts[self.rank] : starts[self.rank + 1]] = torch.tensor(words, dtype=torch.int64)
        dist.all_reduce(table, group=self._group)
        result = []
        for rank in range(self.size):
            offers = _decode(table[starts[rank] : starts[rank + 1]].tolist())
            result.append([strip for peer, strip in offers if peer in (-1, self.rank)])
        return result

    def all_reduce(self, values: Tensor) -> None:
        sum_in_place(values, self._sum_on_host)

    def _sum_on_host(self, total: Tensor) -> None:
        """All-reduce a contiguous tensor within the host, summed in rank order, so that all ranks get the same bits."""
        assert total.dtype in SUM_TYPES
        flat = total.view(-1)
        step = SUM_BYTES // flat.itemsize
        for start in range(0, flat.numel() if len(self._host_ranks) > 1 else 0, step):
            part = flat[start : start + step]
            first = SUM_BYTES * (self._barriers % 2)
            half = slice(first, first + part.numel() * part.itemsize)
            shared = {rank: buffer[half].view(part.dtype) for rank, buffer in self._buffers.items()}
            shared[self.rank].copy_(part)
            self._barrier_on_host()
            one, two, *others = shared.values()
            torch.add(one, two, out=part)
            for other in others:
                part.add_(other)

    def barrier(self) -> None:
        self._barrier_on_host()

    def _barrier_on_host(self) -> None:
        """Barrier over the host's ranks.

        The all-reduce buffer is double-buffered: each barrier switches to the other half.
        """
        self._barriers += 1
        self._arrived[self.rank].set(self._barriers)
        for peer, counter in self._arrived.items():
            if peer != self.rank:
                self._wait(counter, self._barriers, peer)

    def close(self) -> None:
        for connection in self._connections:
            connection.release_memory()
        self._connections.clear()
        self._arrived, self._buffers = {}, {}
        self._arena.close()


class _HostConnection:
    """A connection through mapped memory. Writers increment `ready` for each reader; readers increment `taken`.

    `ready` and `confirmed` are the "ready" and "taken" counters of the readers of this rank's strips. `receives` has,
    for each peer: its "ready" counter, the copies of its strips, and the "taken" counter that confirms the copies.
    """

    def __init__(
        self,
        *,
        wait: CounterWait,
        close: Callable[[_HostConnection], None],
        pack: list[Copy],
        ready: list[Counter],
        confirmed: list[tuple[int, Counter]],
        receives: list[tuple[int, Counter, list[Copy], Counter]],
    ) -> None:
        self._wait, self._pack, self._ready, self._confirmed, self._receives = wait, pack, ready, confirmed, receives
        self._close, self._round = close, 0

    def wait_until_sent(self) -> None:
        for peer, taken in self._confirmed:
            self._wait(taken, self._round, peer)

    def start(self) -> None:
        self.wait_until_sent()
        for copy in self._pack:
            copy()
        self._round += 1
        for counter in self._ready:
            counter.set(self._round)

    def finish(self) -> None:
        for peer, ready, copies, taken in self._receives:
            self._wait(ready, self._round, peer)
            for copy in copies:
                copy()
            taken.set(self._round)

    def close(self) -> None:
        self.release_memory()
        self._close(self)

    def release_memory(self) -> None:
        """Drop all views of shared memory."""
        self._pack, self._ready, self._confirmed, self._receives = [_raise_closed], [], [], []


def _raise_closed() -> None:
    raise TesseraError("the transport of this exchange is closed", do="open a transport and make a new exchange")


def _get_time_limit(group: dist.ProcessGroup | None) -> float:
    """Return the timeout of a process group in seconds."""
    backend = (group or dist.group.WORLD)._get_backend(torch.device("cpu"))  # type: ignore[union-attr]
    seconds: float = backend.options._timeout.total_seconds()
    return seconds


def _encode(peer: int, strip: StripAddress) -> list[int]:
    """Return a strip's address as integers: peer, process, descriptor, identity, size, offset, shape and strides."""
    parts = Path(strip.address.path).parts  # /proc/PID/fd/N
    place = [int(parts[2]), int(parts[4]), *strip.address.identity, strip.address.size, strip.offset]
    return [peer, *place, len(strip.shape), *strip.shape, *strip.stride]


def _decode(words: list[int]) -> list[tuple[int, StripAddress]]:
    offers = []
    while words:
        peer, pid, descriptor, device, inode, size, offset, dims, *rest = words
        address = SharedMemoryAddress(f"/proc/{pid}/fd/{descriptor}", (device, inode), size)
        offers.append((peer, StripAddress(address, offset, tuple(rest[:dims]), tuple(rest[dims : 2 * dims]))))
        words = rest[2 * dims :]
    return offers
