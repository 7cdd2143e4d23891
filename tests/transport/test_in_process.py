"""Ranks that are threads: they meet, they add, and one that fails leaves nobody waiting."""

from __future__ import annotations

import time

import pytest

from tessera.errors import BenchmarkFailed
from tessera.transport import in_process
from tessera.transport.in_process import InProcessTransport, alone, run_ranks
from tests.transport.rounds import (
    CARRIED,
    Problem,
    check_dtype,
    check_rounds,
    check_running_ahead,
    check_sums,
    rows_of_four,
)


def test_results_come_by_rank() -> None:
    assert run_ranks(3, lambda transport: (transport.rank, transport.size)) == [(0, 3), (1, 3), (2, 3)]
    assert run_ranks(2, lambda transport: transport.exchange_objects(transport.rank)) == [[0, 1], [0, 1]]


@pytest.mark.parametrize("ranks", [1, 3])
def test_sums_of_every_dtype(ranks: int) -> None:
    run_ranks(ranks, check_sums)


@pytest.mark.parametrize("dtype", CARRIED)
def test_every_dtype_is_carried(dtype: str) -> None:
    run_ranks(3, lambda transport: check_dtype(transport, dtype))


def test_one_rank_needs_nobody() -> None:
    transport = alone()
    check_rounds(transport, Problem(plan=rows_of_four(1), seed=0))
    transport.barrier()
    transport.close()


def test_nobody_runs_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    run_ranks(3, check_running_ahead)
    monkeypatch.setattr(in_process._InProcessConnection, "settle", lambda connection: None)
    with pytest.raises(AssertionError, match="round"):  # the check finds it if somebody does
        run_ranks(3, check_running_ahead)


def test_a_rank_that_fails_ends_the_others_wherever_they_wait() -> None:
    def fail(transport: InProcessTransport) -> None:
        exchange = Problem(plan=rows_of_four(3), seed=0).exchange(transport)
        if transport.rank == 1:
            time.sleep(0.05)
            raise ZeroDivisionError("nothing left")
        if transport.rank == 0:
            exchange.start()
            exchange.finish()
        transport.barrier()

    began = time.monotonic()
    with pytest.raises(ZeroDivisionError, match="nothing left"):
        run_ranks(3, fail)
    assert time.monotonic() - began < in_process.PATIENCE / 2


def test_a_neighbour_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_process, "PATIENCE", 0.5)

    def wait(transport: InProcessTransport) -> None:
        exchange = Problem(plan=rows_of_four(2), seed=0).exchange(transport)
        if transport.rank == 0:
            exchange.start()
            exchange.finish()

    with pytest.raises(BenchmarkFailed, match=r"no sign of a neighbour for 0\.5 s"):
        run_ranks(2, wait)
