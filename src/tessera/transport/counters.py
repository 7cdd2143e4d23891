"""Counters in shared memory, with which the ranks of a host signal. A reader polls briefly, then waits in the kernel.

A counter has a cache line of its own. Its writer stores the data, then the counter; its readers wait until the counter
has reached a value, then read the data. A reader polls; if there are more ranks than cores, it gives up its core after
every look (sched_yield), so that the rank that it waits for can run. Switching to a rank that is ready to run takes a
tenth of the time of waking one. A reader that polled in vain polls for a shorter time the next time: on a busy
machine, or if it always waits long, polling only takes time from others. It then sleeps in the kernel (futex) until the
writer wakes it. Without futexes it sleeps between polls.

x86 processors keep the order of the data and the counter; on other processors `fence` orders memory accesses.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import threading
import time
from collections.abc import Mapping
from math import inf
from pathlib import Path

from torch import Tensor

from tessera.affinity import get_affinity
from tessera.errors import BenchmarkFailed, TesseraError

COUNTER_WORDS = 8  # int64 words of a counter, a cache line: the value, and whether a reader sleeps
SLEEPS = 1  # word that a reader sets before it sleeps
MAX_POLLS, MIN_POLLS = 2000, 20  # about 100 µs and 1 µs
POLLED_SECONDS = 100e-6
MAX_YIELD_SECONDS, MIN_YIELD_SECONDS = 1e-3, 20e-6  # polling of ranks that share cores
SLEEP_SECONDS = 0.002  # a reader then polls again; writers wake readers earlier
POLL_SECONDS = 50e-6  # sleep between polls on machines without futexes
SECONDS_BEFORE_CHECK = 1.0  # a peer that has not answered for so long may have died
KEEPS_ORDER = platform.machine() in ("x86_64", "AMD64")  # loads and stores are not reordered among themselves
FUTEX_CALLS = {"x86_64": 202, "aarch64": 98}  # number of the system call by machine
FUTEX_WAIT, FUTEX_WAKE, ALL_READERS = 0, 1, 0x7FFFFFFF


_lock = threading.Lock()


def fence() -> None:
    """Full memory barrier, implemented by acquiring and releasing a lock."""
    with _lock:
        pass


class Counter:
    """A counter in shared memory, which one rank writes and other ranks of the host read."""

    __slots__ = ("_address", "_words")

    def __init__(self, words: Tensor) -> None:
        assert words.numel() == COUNTER_WORDS
        self._address = words.data_ptr()
        self._words: memoryview = words.numpy().data

    @property
    def value(self) -> int:
        return int(self._words[0])

    def set(self, value: int) -> None:
        """Publish a value, after all earlier writes of this rank, and wake the readers that sleep."""
        words = self._words
        if not KEEPS_ORDER:
            fence()
        sleeps = words[SLEEPS]
        if sleeps:  # cleared before the value is written: a reader of the next value may set it again at once
            words[SLEEPS] = 0
        words[0] = value
        with _lock:  # a fence: the counter is written before the flag is read
            pass
        if sleeps or words[SLEEPS]:
            _wake(self._address)

    def poll(self, wanted: int, polls: int) -> bool:
        """Return whether the counter has reached a value, after so many looks at it."""
        words = self._words
        for _ in range(polls):
            if words[0] >= wanted:
                if not KEEPS_ORDER:
                    fence()
                return True
        return False

    def poll_and_yield(self, wanted: int, seconds: float) -> bool:
        """Return whether the counter has reached a value after some time, during which other processes get the core."""
        words = self._words
        limit = time.monotonic() + seconds
        while words[0] < wanted:
            if time.monotonic() > limit:
                return False
            os.sched_yield()
        if not KEEPS_ORDER:
            fence()
        return True

    def sleep(self, wanted: int) -> bool:
        """Sleep until the counter has reached a value; return False if it has not after about a second."""
        words = self._words
        limit = time.monotonic() + SECONDS_BEFORE_CHECK
        while True:
            words[SLEEPS] = 1
            fence()
            seen = words[0]
            if seen >= wanted:
                fence()
                return True
            if time.monotonic() > limit:
                return False
            _sleep(self._address, seen)


class CounterWait:
    """Waits for counters of peers on the host: polls, then sleeps, and raises an error if the peer has ended."""

    def __init__(self, pids: Mapping[int, int], time_limit: float = inf) -> None:
        """Prepare to wait for ranks with these process ids, for at most `time_limit` seconds."""
        cores = set().union(*(_get_cores(pid) for pid in pids.values()))
        self._yields = len(pids) > len(cores)
        self._polls, self._yield_seconds = MAX_POLLS, MAX_YIELD_SECONDS
        self._pids, self._time_limit = pids, time_limit

    def __call__(self, counter: Counter, wanted: int, peer: int) -> None:
        """Wait until a counter of a peer has reached a value."""
        if counter.poll_and_yield(wanted, self._yield_seconds) if self._yields else counter.poll(wanted, self._polls):
            return
        began = time.monotonic()
        while not counter.sleep(wanted):
            if not _is_running(self._pids[peer]) and counter.value < wanted:
                raise BenchmarkFailed(f"rank {peer} has ended during an exchange")
            if time.monotonic() - began > self._time_limit:
                raise TesseraError(
                    f"rank {peer} has not answered for {self._time_limit:g} s",
                    do="see its own error, if any; all ranks must run the same operations. "
                    "The limit is the timeout of init_process_group",
                )
        self._adapt(time.monotonic() - began)

    def _adapt(self, slept: float) -> None:
        """Poll as long as possible the next time if polling a little longer would have sufficed, or else shorter."""
        if slept < (MAX_YIELD_SECONDS if self._yields else POLLED_SECONDS):
            self._polls, self._yield_seconds = MAX_POLLS, MAX_YIELD_SECONDS
        else:
            self._polls = max(MIN_POLLS, self._polls // 2)
            self._yield_seconds = max(MIN_YIELD_SECONDS, self._yield_seconds / 2)


def _get_cores(pid: int) -> set[int]:
    try:
        return get_affinity(pid)
    except OSError:  # the peer has ended already
        return set()


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in "ZX"


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


_SLEEP = ctypes.byref(_Timespec(0, round(SLEEP_SECONDS * 1e9)))
_FUTEX = FUTEX_CALLS.get(platform.machine(), 0) if sys.platform == "linux" and sys.maxsize > 1 << 32 else 0
_call = ctypes.CDLL(None).syscall if _FUTEX else None


def _sleep(address: int, seen: int) -> None:
    """Sleep until the counter at an address is written, unless it no longer has the value `seen`."""
    if _call is None:
        time.sleep(POLL_SECONDS)
        return
    low_word = ctypes.c_uint32(seen & 0xFFFFFFFF)
    _call(ctypes.c_long(_FUTEX), ctypes.c_void_p(address), FUTEX_WAIT, low_word, _SLEEP, None, 0)


def _wake(address: int) -> None:
    if _call is not None:
        _call(ctypes.c_long(_FUTEX), ctypes.c_void_p(address), FUTEX_WAKE, ALL_READERS, None, None, 0)
