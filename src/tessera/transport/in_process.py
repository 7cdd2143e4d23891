"""An in-process transport, whose ranks are threads of one process: for tests and experiments."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from tessera.errors import BenchmarkFailed
from tessera.transport.all_reduce import sum_in_place
from tessera.transport.transport import Connection, Strip, TransportTraits

T = TypeVar("T")
WAIT_LIMIT = 60.0  # seconds that a rank waits before it raises an error


def run_ranks(size: int, function: Callable[[InProcessTransport], T]) -> list[T]:
    """Call `function(transport)` in one thread per rank. Return the results by rank, or raise the first error."""
    world = _World(size)

    def run_rank(rank: int) -> T:
        try:
            return function(InProcessTransport(world, rank))
        except BaseException:
            world.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(run_rank, rank) for rank in range(size)]
        errors = [error for future in futures if (error := future.exception()) is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, _FOLLOWING_ERRORS)):
        raise error
    return [future.result() for future in futures]


def open_single_rank() -> InProcessTransport:
    """Return the transport of a single rank."""
    return InProcessTransport(_World(1), 0)


class _PeerFailed(Exception):
    """Raised in a waiting rank after another rank has failed."""


_FOLLOWING_ERRORS = (_PeerFailed, threading.BrokenBarrierError)  # errors that follow from another rank's error


class _World:
    """The state that all ranks of a process share."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.rendezvous = threading.Barrier(size, timeout=WAIT_LIMIT)
        self.board: list[Any] = [None] * size
        self._signals: dict[tuple[object, ...], threading.Semaphore] = {}
        self._lock = threading.Lock()
        self._aborted = False

    def get_signal(self, *name: object) -> threading.Semaphore:
        """Return the semaphore of a name, which one rank releases and another rank acquires."""
        with self._lock:
            return self._signals.setdefault(name, threading.Semaphore(0))

    def forget_signals(self, connection: int) -> None:
        """Delete the semaphores of a connection."""
        with self._lock:
            self._signals = {name: signal for name, signal in self._signals.items() if name[0] != connection}

    def wait(self, signals: Sequence[threading.Semaphore]) -> None:
        for signal in signals:
            if not self._aborted and not signal.acquire(timeout=WAIT_LIMIT):
                raise BenchmarkFailed(f"no signal from a neighbour for {WAIT_LIMIT:g} s")
            if self._aborted:
                raise _PeerFailed

    def abort(self) -> None:
        """Wake all waiting ranks with an error after a rank has failed."""
        with self._lock:
            self._aborted = True
            self.rendezvous.abort()
            for signal in self._signals.values():
                signal.release()


class InProcessTransport:
    """A transport between threads that copies every strip once, from the sender's to the receiver's memory."""

    name = "in-process"
    traits = TransportTraits(messages="")

    def __init__(self, world: _World, rank: int) -> None:
        self._world, self.rank, self.size, self._connections = world, rank, world.size, 0

    def exchange_objects(self, value: Any) -> list[Any]:
        """Return the values of all ranks, by rank."""
        self._world.board[self.rank] = value
        self._world.rendezvous.wait()
        values = list(self._world.board)
        self._world.rendezvous.wait()
        return values

    def empty(self, count: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(count, dtype=dtype)

    def free(self, memory: Tensor) -> None:
        """Do nothing: the memory is released with its last reference."""

    def connect(self, sends: Sequence[Strip], receives: Sequence[Strip]) -> Connection:
        self._connections += 1
        offered = [
            iter([strip.tensor for strip in strips if strip.peer == self.rank])
            for strips in self.exchange_objects(list(sends))
        ]
        copies = [(strip.tensor, next(offered[strip.peer])) for strip in receives]
        readers, read = (sorted({strip.peer for strip in strips}) for strips in (sends, receives))
        signal = partial(self._world.get_signal, self._connections)
        return _InProcessConnection(
            self._world,
            ready=[signal("ready", self.rank, peer) for peer in readers],
            awaited=[signal("ready", peer, self.rank) for peer in read],
            taken=[signal("taken", self.rank, peer) for peer in read],
            confirmed=[signal("taken", peer, self.rank) for peer in readers],
            copies=copies,
            forget=partial(self._world.forget_signals, self._connections),
        )

    def all_reduce(self, values: Tensor) -> None:
        def add(total: Tensor) -> None:
            all_values = self.exchange_objects(total.clone())
            total.copy_(all_values[0])
            for other in all_values[1:]:
                total.add_(other)

        sum_in_place(values, add)

    def barrier(self) -> None:
        self._world.rendezvous.wait()

    def close(self) -> None:
        """Do nothing, because the transport has no resources to release."""


class _InProcessConnection:
    def __init__(
        self,
        world: _World,
        *,
        ready: list[threading.Semaphore],
        awaited: list[threading.Semaphore],
        taken: list[threading.Semaphore],
        confirmed: list[threading.Semaphore],
        copies: list[tuple[Tensor, Tensor]],
        forget: Callable[[], None],
    ) -> None:
        self.close = forget
        self._wait, self._copies, self._unconfirmed = world.wait, copies, False
        self._ready, self._awaited, self._taken, self._confirmed = ready, awaited, taken, confirmed

    def wait_until_sent(self) -> None:
        if self._unconfirmed:
            self._wait(self._confirmed)
            self._unconfirmed = False

    def start(self) -> None:
        self.wait_until_sent()
        for signal in self._ready:
            signal.release()

    def finish(self) -> None:
        self._wait(self._awaited)
        for target, source in self._copies:
            target.copy_(source)
        for signal in self._taken:
            signal.release()
        self._unconfirmed = True
