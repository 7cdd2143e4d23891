"""Tests of forked launches: new memory, state kept between calls, reported crashes, and no remaining process."""

from __future__ import annotations

import os
import signal
import time

import psutil
import pytest

from tessera.errors import BenchmarkFailed, Refused
from tessera.launch import LaunchConfig, Worker, Workers
from tessera.launch.fresh import FreshProcess

HERE = "tests.launch.test_fresh"
state: list[int] = []


def remember(value: int) -> list[int]:
    state.append(value)
    return state


def die(number: int) -> None:
    os.kill(os.getpid(), number)


def exit_with_code() -> None:
    os._exit(7)


def refuse() -> None:
    raise Refused("no such thing", got=1, allowed="2")


def raise_error() -> None:
    raise ZeroDivisionError("by zero\nand more")


def return_unpicklable() -> object:
    return lambda: None


def hang() -> None:
    time.sleep(1000)


@pytest.mark.timeout(30)
def test_state_is_kept_between_calls_and_not_shared_with_other_processes():
    with FreshProcess() as fresh:
        assert fresh.call(f"{HERE}:remember", 1) == [1]
        assert fresh.call(f"{HERE}:remember", 2) == [1, 2]
    with FreshProcess() as second:
        assert second.call(f"{HERE}:remember", 3) == [3]
    assert state == []


@pytest.mark.timeout(30)
def test_the_end_of_a_process_is_reported_with_its_cause():
    with FreshProcess() as fresh, pytest.raises(BenchmarkFailed, match="killed by SIGSEGV"):
        fresh.call(f"{HERE}:die", int(signal.SIGSEGV))
    with FreshProcess() as fresh, pytest.raises(BenchmarkFailed, match="exit code 7"):
        fresh.call(f"{HERE}:exit_with_code")


@pytest.mark.timeout(30)
def test_errors_keep_their_type():
    with FreshProcess() as fresh:
        with pytest.raises(Refused, match="got 1; allowed: 2"):
            fresh.call(f"{HERE}:refuse")
        message = r"raised ZeroDivisionError: by zero and more \(test_fresh.py:\d+ in raise_error\)$"
        with pytest.raises(BenchmarkFailed, match=message):
            fresh.call(f"{HERE}:raise_error")
        with pytest.raises(BenchmarkFailed, match="pickle"):
            fresh.call(f"{HERE}:return_unpicklable")
        assert fresh.call("os:getpid") != os.getpid()


@pytest.mark.timeout(30)
def test_no_process_is_left_after_close():
    fresh = FreshProcess()
    child = psutil.Process(fresh.call("os:getpid"))
    fresh.close()
    assert not child.is_running()


@pytest.mark.timeout(60)
def test_memory_addresses_differ_between_processes():
    with Workers(LaunchConfig()) as workers:
        (places,) = workers.run(f"{HERE}:list_addresses")
    assert len(set(places)) > 4


def list_addresses(worker: Worker) -> list[int]:
    addresses = []
    for _ in range(8):
        with FreshProcess() as fresh:
            addresses.append(fresh.call(f"{HERE}:get_address"))
    return addresses


def get_address() -> int:
    import ctypes

    return ctypes.addressof(ctypes.create_string_buffer(8 << 20))
