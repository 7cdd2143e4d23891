"""Ranks whose messages go wrong: what a validation has to find."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.launch.worker import Worker
from tessera.measure.samples import Sampling
from tessera.results.record import Case, Record
from tessera.spatial.bench import run as bench
from tessera.transport.transport import Strip

BROKEN_RANK, BROKEN_ROUND = 1, 2


class Breaking:
    """A transport that adds one to the first strip that rank 1 receives in the second round of every connection."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def connect(self, sends: Sequence[Strip], receives: Sequence[Strip]) -> Any:
        connection = self._transport.connect(sends, receives)
        return _Broken(connection, receives) if self._transport.rank == BROKEN_RANK and receives else connection


class _Broken:
    def __init__(self, connection: Any, receives: Sequence[Strip]) -> None:
        self._connection, self._strip, self._rounds = connection, receives[0].tensor, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def finish(self) -> None:
        self._connection.finish()
        self._rounds += 1
        if self._rounds == BROKEN_ROUND:
            self._strip.add_(1)


def run_case(worker: Worker, case: Case, sampling: Sampling) -> Record:
    """A halo case over a transport that breaks."""
    real = bench.open_transport
    bench.open_transport = lambda name, worker: Breaking(real(name, worker))  # type: ignore[assignment]
    try:
        return bench.run_case(worker, case, sampling)
    finally:
        bench.open_transport = real
