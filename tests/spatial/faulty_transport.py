"""A transport that corrupts data, for tests that a validation detects the error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.launch.worker import RunContext
from tessera.measure.samples import Sampling
from tessera.results.record import Case, Record
from tessera.spatial.bench import run as bench
from tessera.transport.transport import Strip

FAULTY_RANK, FAULTY_ROUND = 1, 2


class FaultyTransport:
    """A transport that adds one to the first strip that rank 1 receives in the second round of every connection."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def connect(self, sends: Sequence[Strip], receives: Sequence[Strip]) -> Any:
        connection = self._transport.connect(sends, receives)
        return (
            _FaultyConnection(connection, receives) if self._transport.rank == FAULTY_RANK and receives else connection
        )


class _FaultyConnection:
    def __init__(self, connection: Any, receives: Sequence[Strip]) -> None:
        self._connection, self._strip, self._rounds = connection, receives[0].tensor, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def finish(self) -> None:
        self._connection.finish()
        self._rounds += 1
        if self._rounds == FAULTY_ROUND:
            self._strip.add_(1)


def run_case(context: RunContext, case: Case, sampling: Sampling) -> Record:
    """Run a halo case over the faulty transport."""
    real = bench.open_transport
    bench.open_transport = lambda name, worker: FaultyTransport(real(name, worker))  # type: ignore[assignment]
    try:
        return bench.run_case(context, case, sampling)
    finally:
        bench.open_transport = real
