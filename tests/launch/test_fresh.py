"""Forked launches: new memory, state kept between calls, deaths reported, nothing left behind."""

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


def leave() -> None:
    os._exit(7)


def refuse() -> None:
    raise Refused("no such thing", got=1, allowed="2")


def stumble() -> None:
    raise ZeroDivisionError("by zero\nand more")


def unpicklable() -> object:
    return lambda: None


def hang() -> None:
    time.sleep(1000)


@pytest.mark.timeout(30)
def test_a_child_keeps_its_state_and_the_parent_its_own():
    with FreshProcess() as fresh:
        assert fresh.call(f"{HERE}:remember", 1) == [1]
        assert fresh.call(f"{HERE}:remember", 2) == [1, 2]
    with FreshProcess() as other:
        assert other.call(f"{HERE}:remember", 3) == [3]
    assert state == []


@pytest.mark.timeout(30)
def test_a_death_is_told_with_its_cause():
    with FreshProcess() as fresh, pytest.raises(BenchmarkFailed, match="killed by SIGSEGV"):
        fresh.call(f"{HERE}:die", int(signal.SIGSEGV))
    with FreshProcess() as fresh, pytest.raises(BenchmarkFailed, match="exit code 7"):
        fresh.call(f"{HERE}:leave")


@pytest.mark.timeout(30)
def test_errors_come_back_as_what_they_are():
    with FreshProcess() as fresh:
        with pytest.raises(Refused, match="got 1; allowed: 2"):
            fresh.call(f"{HERE}:refuse")
        told = r"raised ZeroDivisionError: by zero and more \(test_fresh.py:\d+ in stumble\)$"
        with pytest.raises(BenchmarkFailed, match=told):
            fresh.call(f"{HERE}:stumble")
        with pytest.raises(BenchmarkFailed, match="pickle"):
            fresh.call(f"{HERE}:unpicklable")
        assert fresh.call("os:getpid") != os.getpid()


@pytest.mark.timeout(30)
def test_nothing_is_left_behind():
    fresh = FreshProcess()
    child = psutil.Process(fresh.call("os:getpid"))
    fresh.close()
    assert not child.is_running()


@pytest.mark.timeout(60)
def test_memory_lies_elsewhere_in_every_launch():
    with Workers(LaunchConfig()) as workers:
        (places,) = workers.run(f"{HERE}:addresses")
    assert len(set(places)) > 4


def addresses(worker: Worker) -> list[int]:
    found = []
    for _ in range(8):
        with FreshProcess() as fresh:
            found.append(fresh.call(f"{HERE}:address"))
    return found


def address() -> int:
    import ctypes

    return ctypes.addressof(ctypes.create_string_buffer(8 << 20))
