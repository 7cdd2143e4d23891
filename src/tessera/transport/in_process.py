"""Ranks that are threads of one process: for tests, and for looking at a plan at work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from tessera.errors import BenchmarkFailed
from tessera.transport.summing import sum_in_place
from tessera.transport.transport import Connection, Strip

T = TypeVar("T")
PATIENCE = 60.0  # seconds: a rank that waits longer waits for one that will not come


def run_ranks(size: int, function: Callable[[InProcessTransport], T]) -> list[T]:
    """Call the function on every rank, each in a thread of its own; the results by rank, or the first error."""
    world = _World(size)

    def one(rank: int) -> T:
        try:
            return function(InProcessTransport(world, rank))
        except BaseException:
            world.give_up()
            raise

    with ThreadPoolExecutor(size) as pool:
        found = [pool.submit(one, rank) for rank in range(size)]
        errors = [error for future in found if (error := future.exception()) is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, _LEFT_ALONE)):
        raise error
    return [future.result() for future in found]


def alone() -> InProcessTransport:
    """The transport of a single rank."""
    return InProcessTransport(_World(1), 0)


class _GivenUp(Exception):
    """Another rank failed."""


_LEFT_ALONE = (_GivenUp, threading.BrokenBarrierError)  # errors that only follow from another rank's


class _World:
    """What the ranks have in common."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.meeting = threading.Barrier(size, timeout=PATIENCE)
        self.board: list[Any] = [None] * size
        self._signals: dict[tuple[object, ...], threading.Semaphore] = {}
        self._lock = threading.Lock()
        self._over = False

    def signal(self, *name: object) -> threading.Semaphore:
        """What one rank releases and another awaits, under a name that both know."""
        with self._lock:
            return self._signals.setdefault(name, threading.Semaphore(0))

    def wait(self, signals: Sequence[threading.Semaphore]) -> None:
        for signal in signals:
            if not self._over and not signal.acquire(timeout=PATIENCE):
                raise BenchmarkFailed(f"no sign of a neighbour for {PATIENCE:g} s")
            if self._over:
                raise _GivenUp

    def give_up(self) -> None:
        """A rank failed: nobody waits any longer."""
        with self._lock:
            self._over = True
            self.meeting.abort()
            for signal in self._signals.values():
                signal.release()


class InProcessTransport:
    """Every strip is copied once, from one thread's memory to another's."""

    name = "in-process"

    def __init__(self, world: _World, rank: int) -> None:
        self._world, self.rank, self.size, self._connections = world, rank, world.size, 0

    def exchange_objects(self, value: Any) -> list[Any]:
        """Everybody's value, by rank."""
        self._world.board[self.rank] = value
        self._world.meeting.wait()
        found = list(self._world.board)
        self._world.meeting.wait()
        return found

    def empty(self, count: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(count, dtype=dtype)

    def connect(self, sends: Sequence[Strip], receives: Sequence[Strip]) -> Connection:
        self._connections += 1
        offered = [
            iter([strip.tensor for strip in strips if strip.peer == self.rank])
            for strips in self.exchange_objects(list(sends))
        ]
        copies = [(strip.tensor, next(offered[strip.peer])) for strip in receives]
        readers, read = (sorted({strip.peer for strip in strips}) for strips in (sends, receives))
        signal = partial(self._world.signal, self._connections)
        return _InProcessConnection(
            self._world,
            ready=[signal("ready", self.rank, peer) for peer in readers],
            awaited=[signal("ready", peer, self.rank) for peer in read],
            taken=[signal("taken", self.rank, peer) for peer in read],
            settled=[signal("taken", peer, self.rank) for peer in readers],
            copies=copies,
        )

    def all_reduce(self, values: Tensor) -> None:
        def add(summed: Tensor) -> None:
            everybody = self.exchange_objects(summed.clone())
            summed.copy_(torch.stack(everybody).sum(0, dtype=summed.dtype))

        sum_in_place(values, add)

    def barrier(self) -> None:
        self._world.meeting.wait()

    def close(self) -> None:
        """Nothing is held."""


class _InProcessConnection:
    def __init__(
        self,
        world: _World,
        *,
        ready: list[threading.Semaphore],
        awaited: list[threading.Semaphore],
        taken: list[threading.Semaphore],
        settled: list[threading.Semaphore],
        copies: list[tuple[Tensor, Tensor]],
    ) -> None:
        self._wait, self._copies, self._unsettled = world.wait, copies, False
        self._ready, self._awaited, self._taken, self._settled = ready, awaited, taken, settled

    def settle(self) -> None:
        if self._unsettled:
            self._wait(self._settled)
            self._unsettled = False

    def start(self) -> None:
        self.settle()
        for signal in self._ready:
            signal.release()

    def finish(self) -> None:
        self._wait(self._awaited)
        for target, source in self._copies:
            target.copy_(source)
        for signal in self._taken:
            signal.release()
        self._unsettled = True
