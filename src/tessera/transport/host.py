"""The transport of torch.distributed ranks on one host: borders are copied once, straight out of a peer's memory.

Ranks signal with counters in shared memory instead of messages: a sender counts its round up when its strips are
written ("ready"), a receiver when it has copied them ("taken"). A waiting rank polls the counter. If ranks outnumber
cores it gives up its time slice after every poll, and after a while it sleeps between polls. Addresses are exchanged
once per connection, as integers, through the process group.

A counter is written after the data, and read before it. On x86 the processor keeps this order; elsewhere the lock that
`_fence` takes orders memory.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from tessera.errors import BenchmarkFailed, TesseraError
from tessera.transport.all_reduce import SUM_TYPES, sum_in_place
from tessera.transport.distributed import DistributedTransport
from tessera.transport.packing import Copy, list_peers, prepare_copy
from tessera.transport.shared_arena import SharedArena, StripAddress
from tessera.transport.shared_memory import SharedMemoryAddress
from tessera.transport.transport import Connection, Strip, TransportTraits

SUM_BYTES = 1 << 18  # bytes that are summed at a time
POLLS_BEFORE_YIELD = 2000  # about 100 µs, if every rank has a core
SECONDS_BEFORE_SLEEP, SLEEP_SECONDS = 0.005, 50e-6
SECONDS_BEFORE_CHECK = 1.0  # a peer that has not answered for so long may have died
COUNTER_STEP = 8  # counters of 8 bytes, each in a cache line of its own


class HostTransport(DistributedTransport):
    """Ranks of torch.distributed on one host, with the data in shared memory."""

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        super().__init__(group)
        self.name = "shm"
        self.traits = TransportTraits(messages=self.traits.messages, copies_from_peer=True)
        self._arena = SharedArena()
        self._connections: set[_HostConnection] = set()
        counters = self._arena.allocate(COUNTER_STEP, torch.int64).zero_()
        buffers = self._arena.allocate(2 * SUM_BYTES, torch.uint8)
        addresses = self._exchange([self._arena.locate(counters), self._arena.locate(buffers)])
        pids = [int(Path(strips[0].address.path).parts[2]) for strips in addresses]
        self._patience = _Patience(self.size, pids, _get_time_limit(group))
        self._arrived = [
            counters if rank == self.rank else self._arena.map_strip(addresses[rank][0], torch.int64)
            for rank in range(self.size)
        ]
        self._polled = [_poll(tensor) for tensor in self._arrived]
        self._buffers = [
            buffers if rank == self.rank else self._arena.map_strip(addresses[rank][1], torch.uint8)
            for rank in range(self.size)
        ]
        self._sums = 0  # barriers and sums so far
        self.barrier()  # a rank must not close memory before all other ranks have mapped it

    def empty(self, count: int, dtype: torch.dtype) -> Tensor:
        return self._arena.allocate(count, dtype)

    def free(self, memory: Tensor) -> None:
        self._arena.free(memory)

    def connect(self, sends: Sequence[Strip], receives: Sequence[Strip]) -> Connection:
        sends, receives = ([strip for strip in strips if strip.tensor.numel()] for strips in (sends, receives))
        pack: list[Copy] = []
        strips = [self._arena.gather_strip(strip.tensor, pack) for strip in sends]
        counters = self._arena.allocate(2 * self.size * COUNTER_STEP, torch.int64).zero_()
        located = [self._arena.locate(tensor) for tensor in strips]
        tables = self._exchange([self._arena.locate(counters), *located], [-1, *(strip.peer for strip in sends)])
        copies: dict[int, list[Copy]] = {}
        offered = {peer: iter(table[1:]) for peer, table in enumerate(tables)}
        for strip in receives:
            source = self._arena.map_strip(next(offered[strip.peer]), strip.tensor.dtype)
            copies.setdefault(strip.peer, []).append(prepare_copy(strip.tensor, source))
        theirs = {
            peer: _poll(self._arena.map_strip(tables[peer][0], torch.int64)) for peer in {*copies, *list_peers(sends)}
        }

        def close(connection: _HostConnection) -> None:
            self._connections.discard(connection)
            self._arena.free(counters)
            self._arena.free_gathered([strip.tensor for strip in sends], strips)

        connection = _HostConnection(
            rank=self.rank,
            size=self.size,
            own=_poll(counters),
            theirs=theirs,
            pack=pack,
            readers=list_peers(sends),
            copies=copies,
            wait=self._patience.wait,
            close=close,
        )
        self._connections.add(connection)
        self.barrier()  # a rank must not close memory before all other ranks have mapped it
        return connection

    def _exchange(self, strips: Sequence[StripAddress], peers: Sequence[int] | None = None) -> list[list[StripAddress]]:
        """Return the strips that each rank offers to this rank; strips without a peer (-1) are for all ranks."""
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
        sum_in_place(values, self._sum)

    def _sum(self, total: Tensor) -> None:
        """Sum a contiguous tensor over the ranks, in the order of the ranks, so that all ranks get the same bits."""
        assert total.dtype in SUM_TYPES
        flat = total.view(-1)
        step = SUM_BYTES // flat.itemsize
        for start in range(0, flat.numel(), step):
            part = flat[start : start + step]
            half = slice(SUM_BYTES * (self._sums % 2), SUM_BYTES * (self._sums % 2) + part.numel() * part.itemsize)
            shared = [buffer[half].view(part.dtype) for buffer in self._buffers]
            shared[self.rank].copy_(part)
            self.barrier()
            torch.add(shared[0], shared[1], out=part)
            for other in shared[2:]:
                part.add_(other)

    def barrier(self) -> None:
        """Wait until every rank has reached the barrier. The halves of the sum buffers alternate with it."""
        self._sums += 1
        _fence()
        self._polled[self.rank][0] = self._sums
        for peer, counter in enumerate(self._polled):
            if peer != self.rank:
                self._patience.wait(counter, 0, self._sums, peer)

    def close(self) -> None:
        for connection in self._connections:
            connection.release_memory()
        self._connections.clear()
        self._arrived, self._buffers, self._polled = [], [], []
        self._arena.close()


class _HostConnection:
    """A connection through mapped memory and counters: for each peer, the last round that is ready, and taken."""

    def __init__(
        self,
        *,
        rank: int,
        size: int,
        own: memoryview,
        theirs: dict[int, memoryview],
        pack: list[Copy],
        readers: list[int],
        copies: dict[int, list[Copy]],
        wait: Callable[[memoryview, int, int, int], None],
        close: Callable[[_HostConnection], None],
    ) -> None:
        self._close = close
        self._own, self._theirs, self._pack, self._readers, self._copies = own, theirs, pack, readers, copies
        self._wait, self._round = wait, 0
        # A rank's counters: one per peer for "ready", then one per peer for "taken".
        self._ready_here, self._taken_here = rank * COUNTER_STEP, (size + rank) * COUNTER_STEP
        self._size = size

    def settle(self) -> None:
        for peer in self._readers:
            self._wait(self._theirs[peer], self._taken_here, self._round, peer)

    def start(self) -> None:
        self.settle()
        for copy in self._pack:
            copy()
        self._round += 1
        _fence()
        for peer in self._readers:
            self._own[peer * COUNTER_STEP] = self._round

    def finish(self) -> None:
        for peer, copies in self._copies.items():
            self._wait(self._theirs[peer], self._ready_here, self._round, peer)
            _fence()
            for copy in copies:
                copy()
            _fence()
            self._own[(self._size + peer) * COUNTER_STEP] = self._round

    def close(self) -> None:
        self.release_memory()
        self._close(self)

    def release_memory(self) -> None:
        """Drop all views of shared memory."""
        self._copies, self._pack, self._theirs = {}, [_raise_closed], {}
        self._readers = []


def _raise_closed() -> None:
    raise TesseraError("the transport of this exchange is closed", do="open a transport and make a new exchange")


class _Patience:
    """How a rank waits for a counter: it polls, then yields its time slice, then sleeps, and notices a dead peer."""

    def __init__(self, ranks: int, pids: Sequence[int], time_limit: float) -> None:
        self._polls = POLLS_BEFORE_YIELD if ranks <= (os.cpu_count() or 1) else 1
        self._pids, self._time_limit = pids, time_limit

    def wait(self, counters: memoryview, index: int, wanted: int, peer: int) -> None:
        """Wait until a counter of a peer has reached a value."""
        for _ in range(self._polls):
            if counters[index] >= wanted:
                return
        began = time.monotonic()
        checked = began
        while counters[index] < wanted:
            os.sched_yield()
            now = time.monotonic()
            if now - began > SECONDS_BEFORE_SLEEP:
                time.sleep(SLEEP_SECONDS)
            if now - checked > SECONDS_BEFORE_CHECK:
                checked = now
                if not Path(f"/proc/{self._pids[peer]}").exists() and counters[index] < wanted:
                    raise BenchmarkFailed(f"rank {peer} has ended during an exchange")
                if now - began > self._time_limit:
                    raise TesseraError(
                        f"rank {peer} has not answered for {self._time_limit:g} s",
                        do="see its own error, if any; all ranks must run the same operations. "
                        "The limit is the timeout of init_process_group",
                    )


def _get_time_limit(group: dist.ProcessGroup | None) -> float:
    """Return the timeout of a process group in seconds."""
    backend = (group or dist.group.WORLD)._get_backend(torch.device("cpu"))  # type: ignore[union-attr]
    seconds: float = backend.options._timeout.total_seconds()
    return seconds


_lock = threading.Lock()


def _fence() -> None:
    """Order memory accesses before and after: taking and releasing a lock is a barrier on every processor."""
    with _lock:
        pass


def _poll(counters: Tensor) -> memoryview:
    """Return counters as integers that can be read and written quickly."""
    view: memoryview = counters.numpy().data
    return view


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


def share_one_host(group: dist.ProcessGroup | None = None) -> bool:
    """Return whether all ranks of a group can map each other's memory. All ranks call it and get the same result."""
    can = hasattr(os, "memfd_create") and str(dist.get_backend(group)) == "gloo"
    try:
        boot = int(Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")[:12], 16)
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except (OSError, ValueError):
        can, boot, namespace = False, 0, 0
    values = torch.zeros(dist.get_world_size(group), 3, dtype=torch.int64)
    values[dist.get_rank(group)] = torch.tensor([int(can), boot, namespace])
    dist.all_reduce(values, group=group)
    return bool(values[:, 0].all()) and len({tuple(row) for row in values.tolist()}) == 1
