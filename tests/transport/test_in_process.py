"""Tests of the in-process transport: barriers, sums, and an error of one rank, which ends the other ranks."""

from __future__ import annotations

import time

import pytest

from tessera.errors import BenchmarkFailed
from tessera.transport import in_process
from tessera.transport.in_process import InProcessTransport, open_single_rank, run_ranks
from tests.transport.checks import (
    CARRIED,
    Problem,
    check_dtype,
    check_rounds,
    check_running_ahead,
    check_sums,
    split_into_rows,
)


def test_results_are_in_the_order_of_ranks() -> None:
    assert run_ranks(3, lambda transport: (transport.rank, transport.size)) == [(0, 3), (1, 3), (2, 3)]
    assert run_ranks(2, lambda transport: transport.exchange_objects(transport.rank)) == [[0, 1], [0, 1]]


@pytest.mark.parametrize("ranks", [1, 3])
def test_sums_of_every_dtype(ranks: int) -> None:
    run_ranks(ranks, check_sums)


@pytest.mark.parametrize("dtype", CARRIED)
def test_every_dtype_is_exchanged(dtype: str) -> None:
    run_ranks(3, lambda transport: check_dtype(transport, dtype))


def test_a_single_rank() -> None:
    transport = open_single_rank()
    check_rounds(transport, Problem(plan=split_into_rows(1), seed=0))
    transport.barrier()
    transport.close()


def test_delayed_ranks_get_the_right_borders(monkeypatch: pytest.MonkeyPatch) -> None:
    run_ranks(3, check_running_ahead)
    monkeypatch.setattr(in_process._InProcessConnection, "wait_until_sent", lambda connection: None)
    with pytest.raises(AssertionError, match="round"):  # the check fails if a rank runs ahead
        run_ranks(3, check_running_ahead)


def test_a_failing_rank_ends_the_others_wherever_they_wait() -> None:
    def fail(transport: InProcessTransport) -> None:
        exchange = Problem(plan=split_into_rows(3), seed=0).open_exchange(transport)
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
    assert time.monotonic() - began < in_process.WAIT_LIMIT / 2


def test_a_rank_that_never_arrives_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_process, "WAIT_LIMIT", 0.5)

    def wait(transport: InProcessTransport) -> None:
        exchange = Problem(plan=split_into_rows(2), seed=0).open_exchange(transport)
        if transport.rank == 0:
            exchange.start()
            exchange.finish()

    with pytest.raises(BenchmarkFailed, match=r"no signal from a neighbour for 0\.5 s"):
        run_ranks(2, wait)
