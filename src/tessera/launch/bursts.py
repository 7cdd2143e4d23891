"""One side of an A/B comparison: a callable kept alive in a fresh process, sampled in short bursts."""

from __future__ import annotations

import os
from typing import Any

from tessera.errors import TesseraError
from tessera.launch.fresh import FreshProcess, resolve
from tessera.launch.worker import Worker
from tessera.measure.clock import MACHINE_CLOCK
from tessera.measure.environment import environment
from tessera.measure.sampler import Series, no_garbage_collection
from tessera.measure.sync import ALONE

WARMUP_NS = 5_000_000
LONG_NS = 50_000_000

_fresh: FreshProcess | None = None  # in the worker: the process of the current launch
_series: Series | None = None  # in that process: the callable and its samples


def preload(worker: Worker, make: str, before: str = "", args: tuple[object, ...] = ()) -> None:
    """In the worker: import what the callable needs, once, so that no launch has to; `before(*args)` imports more."""
    pinned = os.sched_getaffinity(0)
    os.sched_setaffinity(0, os.sched_getaffinity(os.getppid()))  # all sides import at once: not all on one core
    try:
        resolve(make)
        if before:
            resolve(before)(*args)
    finally:
        os.sched_setaffinity(0, pinned)


def describe(worker: Worker) -> dict[str, Any]:
    """In the worker: what it sees of its machine, libraries and settings."""
    return environment()


def attempt(worker: Worker, make: str, args: tuple[object, ...]) -> None:
    """In the worker: make the callable once in a process of its own, so that what is wrong with it shows."""
    with FreshProcess() as fresh:
        fresh.call("tessera.launch.bursts:_make", make, args)


def relaunch(worker: Worker, make: str, args: tuple[object, ...]) -> None:
    """In the worker: a new process with a newly made callable, warmed up; the one before ends."""
    global _fresh
    end(worker)
    _fresh = FreshProcess()
    _fresh.call("tessera.launch.bursts:_prepare", make, args)


def burst(worker: Worker, seconds: float) -> list[float]:
    """In the worker: sample for some time; seconds per call."""
    if _fresh is None:
        raise TesseraError("a burst needs a launch before it")
    values: list[float] = _fresh.call("tessera.launch.bursts:_burst", seconds)
    return values


def end(worker: Worker) -> None:
    """In the worker: end the current launch."""
    global _fresh
    if _fresh is not None:
        _fresh.close()
        _fresh = None


def _make(make: str, args: tuple[object, ...]) -> None:
    resolve(make)(*args)


def _prepare(make: str, args: tuple[object, ...]) -> None:
    global _series
    _series = Series(resolve(make)(*args), MACHINE_CLOCK)
    with no_garbage_collection():
        _series.take()
        _series.forget()
        _series.find_loops(ALONE, LONG_NS)
        until = MACHINE_CLOCK.wall() + WARMUP_NS
        while _series.take() < until:
            pass


def _burst(seconds: float) -> list[float]:
    assert _series is not None
    with no_garbage_collection():
        _series.take()  # brings code and data back into the caches; not counted
        _series.forget()
        until = MACHINE_CLOCK.wall() + round(seconds * 1e9)
        while _series.take() < until:
            pass
    return [ns / _series.loops / 1e9 for ns in _series.wall]
