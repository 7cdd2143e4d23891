"""Tests of counters in shared memory: readers are woken, values are not missed, and the end of a peer is an error."""

from __future__ import annotations

import os
import subprocess
import threading
import time

import pytest
import torch

from tessera.errors import BenchmarkFailed
from tessera.transport import counters
from tessera.transport.counters import COUNTER_WORDS, Counter, CounterWait


def make_counter() -> Counter:
    return Counter(torch.zeros(COUNTER_WORDS, dtype=torch.int64))


def make_wait(ranks: int) -> CounterWait:
    return CounterWait(dict.fromkeys(range(ranks), os.getpid()))


@pytest.mark.parametrize("has_futex", [True, False])
def test_a_sleeping_reader_sees_every_value(has_futex: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_futex:
        monkeypatch.setattr(counters, "_call", None)
    there, back, wait = make_counter(), make_counter(), make_wait(1000)
    rounds = 300

    def answer() -> None:
        for number in range(1, rounds + 1):
            wait(there, number, 0)
            back.set(number)

    reader = threading.Thread(target=answer)
    reader.start()
    for number in range(1, rounds + 1):
        there.set(number)
        wait(back, number, 0)
    reader.join(10)
    assert back.value == rounds


def test_a_writer_wakes_a_sleeping_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    if counters._call is None:
        pytest.skip("no futexes here")
    long = counters._Timespec(20, 0)
    monkeypatch.setattr(counters, "_SLEEP", counters.ctypes.byref(long))
    counter, wait = make_counter(), make_wait(1)
    reader = threading.Thread(target=wait, args=(counter, 1, 0))
    reader.start()
    time.sleep(0.2)  # the reader sleeps
    began = time.monotonic()
    counter.set(1)
    reader.join(10)
    assert time.monotonic() - began < 5


def test_ranks_that_share_cores_poll_less() -> None:
    cores = len(os.sched_getaffinity(0))
    own, shared = make_wait(cores), make_wait(cores + 1)
    assert (own._polls, shared._polls) == (counters.POLLS_WITH_OWN_CORE, counters.POLLS_WITH_SHARED_CORE)


def test_the_end_of_a_peer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "SECONDS_BEFORE_CHECK", 0.1)
    peer = subprocess.Popen(["true"])
    time.sleep(0.2)  # ended, not yet reaped: a zombie
    with pytest.raises(BenchmarkFailed, match="rank 1 has ended during an exchange"):
        CounterWait({0: os.getpid(), 1: peer.pid})(make_counter(), 1, 1)
    peer.wait()
