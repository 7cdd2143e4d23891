"""Tests of counters in shared memory: readers are woken, values are not missed, and the end of a peer is an error."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from typing import Any

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
    monkeypatch.setattr(counters, "MAX_YIELD_SECONDS", 0.0)
    monkeypatch.setattr(counters, "MIN_YIELD_SECONDS", 0.0)
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


def test_only_ranks_that_share_cores_yield_while_they_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    cores, yields = len(os.sched_getaffinity(0)), []
    counter = make_counter()

    def write_after_three_yields() -> None:
        yields.append(1)
        if len(yields) == 3:
            counter.set(1)

    monkeypatch.setattr(os, "sched_yield", write_after_three_yields)
    make_wait(cores + 1)(counter, 1, 0)
    assert len(yields) == 3
    timer = threading.Timer(0.02, counter.set, (2,))
    timer.start()
    make_wait(cores)(counter, 2, 0)
    assert len(yields) == 3


@pytest.mark.parametrize("shares_cores", [True, False])
def test_a_reader_that_polls_in_vain_polls_less_until_waits_are_short(
    shares_cores: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("poll", "poll_and_yield"):  # in vain, also on a busy machine
        monkeypatch.setattr(Counter, name, lambda counter, wanted, limit: False)
    counter, wait = make_counter(), make_wait(1000 if shares_cores else 1)

    def wait_for(number: int) -> float:
        timer = threading.Timer(0.02, counter.set, (number,))
        timer.start()
        wait(counter, number, 0)
        timer.join()
        return wait._yield_seconds if shares_cores else wait._polls

    least = counters.MIN_YIELD_SECONDS if shares_cores else counters.MIN_POLLS
    assert [wait_for(number) for number in range(1, 10)][-1] == least
    monkeypatch.setattr(counters, "POLLED_SECONDS", 10.0)
    monkeypatch.setattr(counters, "MAX_YIELD_SECONDS", 10.0)
    assert wait_for(10) == (counters.MAX_YIELD_SECONDS if shares_cores else counters.MAX_POLLS)


class InterleavedWords(list[int]):
    """Words of a counter: as soon as the value 1 is visible, a reader sets the flag, because it waits for the value 2.

    The reader acts just before the writer's next access to the flag.
    """

    has_reader = False

    def _run_reader(self, place: Any) -> None:
        if place == counters.SLEEPS and list.__getitem__(self, 0) == 1 and not self.has_reader:
            self.has_reader = True
            list.__setitem__(self, counters.SLEEPS, 1)

    def __setitem__(self, place: Any, value: Any) -> None:
        if value == 0:
            self._run_reader(place)
        super().__setitem__(place, value)


def test_the_writer_does_not_clear_the_flag_of_a_reader_of_the_next_value(monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[int] = []
    monkeypatch.setattr(counters, "_wake", woken.append)
    counter, words = make_counter(), InterleavedWords([0] * COUNTER_WORDS)
    counter._words = words  # type: ignore[assignment]
    words[counters.SLEEPS] = 1  # a reader of the value 1
    counter.set(1)
    if not words.has_reader:
        words[counters.SLEEPS] = 1
    counter.set(2)
    assert len(woken) == 2


def test_the_end_of_a_peer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "SECONDS_BEFORE_CHECK", 0.1)
    peer = subprocess.Popen(["true"])
    time.sleep(0.2)  # ended, not yet reaped: a zombie
    with pytest.raises(BenchmarkFailed, match="rank 1 has ended during an exchange"):
        CounterWait({0: os.getpid(), 1: peer.pid})(make_counter(), 1, 1)
    peer.wait()
