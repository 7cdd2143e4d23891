"""Ranks that are threads of one process: for tests, and for looking at a plan at work."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from torch import Tensor

from tessera.errors import BenchmarkFailed
from tessera.transport.transport import Connection, Strip

T = TypeVar("T")
PATIENCE = 60.0  # seconds: a rank that waits longer waits for one that failed


def run_ranks(size: int, function: Callable[[InProcessTransport], T]) -> list[T]:
    """Call the function on every rank, each in a thread of its own; the results by rank, or the first error."""
    world = _World(size)

    def one(rank: int) -> T:
        try:
            return function(InProcessTransport(world, rank))
        except BaseException:
            world.meeting.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        found = [pool.submit(one, rank) for rank in range(size)]
        errors = [future.exception() for future in found]
    real = [error for error in errors if error is not None and not isinstance(error, threading.BrokenBarrierError)]
    for error in real or [error for error in errors if error is not None]:
        raise error
    return [future.result() for future in found]


class _World:
    """What the ranks have in common."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.meeting = threading.Barrier(size, timeout=PATIENCE)
        self.board: list[Any] = [None] * size
        self.signals: dict[tuple[int, int, int, str], threading.Semaphore] = defaultdict(lambda: threading.Semaphore(0))
        self.lock = threading.Lock()

    def signal(self, number: int, source: int, target: int, word: str) -> threading.Semaphore:
        with self.lock:
            return self.signals[number, source, target, word]


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
        offered = self.exchange_objects([(strip.peer, strip.tensor) for strip in sends])
        mine = {
            peer: iter([tensor for target, tensor in strips if target == self.rank])
            for peer, strips in enumerate(offered)
        }
        copies = [(strip.tensor, next(mine[strip.peer])) for strip in receives]
        readers, read = ({strip.peer for strip in strips} for strips in (sends, receives))
        at = self._connections, self._world.signal
        return _InProcessConnection(
            ready=[at[1](at[0], self.rank, peer, "ready") for peer in readers],
            awaited=[at[1](at[0], peer, self.rank, "ready") for peer in read],
            taken=[at[1](at[0], self.rank, peer, "taken") for peer in read],
            settled=[at[1](at[0], peer, self.rank, "taken") for peer in readers],
            copies=copies,
        )

    def all_reduce(self, values: Tensor) -> None:
        total = torch.stack(self.exchange_objects(values.detach().clone())).sum(0)
        values.copy_(total)

    def barrier(self) -> None:
        self._world.meeting.wait()

    def close(self) -> None:
        """Nothing is held."""


class _InProcessConnection:
    def __init__(
        self,
        *,
        ready: list[threading.Semaphore],
        awaited: list[threading.Semaphore],
        taken: list[threading.Semaphore],
        settled: list[threading.Semaphore],
        copies: list[tuple[Tensor, Tensor]],
    ) -> None:
        self._ready, self._awaited, self._taken, self._settled = ready, awaited, taken, settled
        self._copies, self._unsettled = copies, False

    def settle(self) -> None:
        if self._unsettled:
            _wait(self._settled)
            self._unsettled = False

    def start(self) -> None:
        self.settle()
        for signal in self._ready:
            signal.release()

    def finish(self) -> None:
        _wait(self._awaited)
        for target, source in self._copies:
            target.copy_(source)
        for signal in self._taken:
            signal.release()
        self._unsettled = True


def _wait(signals: list[threading.Semaphore]) -> None:
    for signal in signals:
        if not signal.acquire(timeout=PATIENCE):
            raise BenchmarkFailed(f"no sign of a neighbour for {PATIENCE:g} s")
