"""Worker functions of an A/B comparison: each interpreter samples a callable in a forked process, in short bursts."""

from __future__ import annotations

import os
from typing import Any

from tessera.errors import TesseraError
from tessera.launch.fresh import FreshProcess, load_object
from tessera.launch.worker import Worker
from tessera.measure.clock import MACHINE_CLOCK
from tessera.measure.environment import describe_environment
from tessera.measure.sampler import SampleSeries, disable_garbage_collection
from tessera.measure.stopping import StoppingRule, WarmUp, sample_until, warm_up
from tessera.measure.sync import SINGLE_RANK

WARMUP_NS = 5_000_000  # maximum warm-up time of a launch
LONG_CALL_NS = 50_000_000  # a call of at least this duration is one sample; shorter calls are repeated in an inner loop

_process: FreshProcess | None = None  # set in the interpreter: the forked process of the current launch
_series: SampleSeries | None = None  # set in the forked process: the callable and its samples


def preload(worker: Worker, build: str, preload_hook: str = "", args: tuple[object, ...] = ()) -> None:
    """Import the modules of the callable once for all launches; `preload_hook(*args)` imports further modules."""
    pinned = os.sched_getaffinity(0)
    os.sched_setaffinity(0, os.sched_getaffinity(os.getppid()))  # unpinned: all interpreters import in parallel
    try:
        load_object(build)
        if preload_hook:
            load_object(preload_hook)(*args)
    finally:
        os.sched_setaffinity(0, pinned)


def describe_interpreter(worker: Worker) -> dict[str, Any]:
    """Return a description of this interpreter's environment: machine, libraries and settings."""
    return describe_environment()


def call_function(worker: Worker, target: str, args: tuple[object, ...]) -> Any:
    """Call the function `module:function` in this interpreter and return its result."""
    return load_object(target)(*args)


def check_build(worker: Worker, build: str, args: tuple[object, ...]) -> None:
    """Build the callable once in a temporary forked process, and raise any error of the build."""
    with FreshProcess() as process:
        process.call("tessera.ab.worker:_build", build, args)


def start_launch(worker: Worker, build: str, args: tuple[object, ...]) -> None:
    """End the current launch; fork a new process, build the callable in it and warm it up."""
    global _process
    end_launch(worker)
    _process = FreshProcess()
    _process.call("tessera.ab.worker:_build_and_warm_up", build, args)


def sample_burst(worker: Worker, seconds: float) -> list[float]:
    """Sample the callable for `seconds`, and return the seconds per call of each sample."""
    if _process is None:
        raise TesseraError("no launch is running, so no burst can be sampled", do="call start_launch first")
    values: list[float] = _process.call("tessera.ab.worker:_sample_burst", seconds)
    return values


def end_launch(worker: Worker) -> None:
    """End the process of the current launch."""
    global _process
    if _process is not None:
        _process.close()
        _process = None


def _build(build: str, args: tuple[object, ...]) -> None:
    load_object(build)(*args)


def _build_and_warm_up(build: str, args: tuple[object, ...]) -> None:
    global _series
    _series = SampleSeries(load_object(build)(*args), MACHINE_CLOCK)
    with disable_garbage_collection():
        _series.take_sample()
        _series.discard_warmup()
        _series.calibrate_loops(SINGLE_RANK, LONG_CALL_NS)
        warm_up(WarmUp(limit_ns=WARMUP_NS), _series.take_sample, MACHINE_CLOCK.wall())


def _sample_burst(seconds: float) -> list[float]:
    assert _series is not None
    rule = StoppingRule(budget_ns=round(seconds * 1e9), min_samples_over_budget=1)
    with disable_garbage_collection():
        _series.take_sample()  # a discarded sample that brings code and data back into the caches
        _series.discard_warmup()
        sample_until(rule, _series.take_sample, MACHINE_CLOCK.wall())
    return [ns / _series.loops / 1e9 for ns in _series.wall]
