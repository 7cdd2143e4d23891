"""Worker functions of an A/B comparison: each interpreter samples a callable in a forked process, in short bursts."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tessera.affinity import get_affinity, set_affinity
from tessera.errors import TesseraError
from tessera.launch.fresh import FreshProcess, load_object
from tessera.launch.worker import RunContext, Worker
from tessera.measure.clock import MACHINE_CLOCK
from tessera.measure.environment import describe_environment
from tessera.measure.sampler import SampleSeries, disable_garbage_collection
from tessera.measure.samples import Sampling
from tessera.measure.stopping import StoppingRule, WarmUp, sample_until, warm_up
from tessera.measure.sync import SINGLE_RANK
from tessera.results.record import Case, Record

WARMUP_NS = 5_000_000  # maximum warm-up time of a launch
LONG_CALL_NS = 50_000_000  # a call of at least this duration is one sample; shorter calls are repeated in an inner loop


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageOrigin:
    """The top-level modules of a package, and the folder that its build was installed into."""

    modules: tuple[str, ...]
    folder: str

    def check(self) -> None:
        """Raise an error if a module of the package was imported from another place.

        Both sides of a comparison would otherwise be measured with the same code, which would hide every change.
        """
        for name in self.modules:
            path = getattr(sys.modules.get(name), "__file__", None)
            if path is not None and not Path(path).resolve().is_relative_to(Path(self.folder).resolve()):
                raise TesseraError(
                    f"the package {name} is not imported from the build of its revision",
                    got=path,
                    do="move the benchmark file out of the folder that contains the package",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchJob:
    """One launch of a case that is measured as a whole: the hooks of its feature, the case and its sampling."""

    run: str
    preload: str
    case: Case
    sampling: Sampling
    origin: PackageOrigin | None = None


_process: FreshProcess | None = None  # set in the interpreter: the forked process of the current launch
_series: SampleSeries | None = None  # set in the forked process: the callable and its samples
_cleanup = ExitStack()  # in the forked process: the clean-up of the callable


def preload(worker: Worker, build: str, preload_hook: str = "", args: tuple[object, ...] = ()) -> None:
    """Import the modules of the callable once for all launches; `preload_hook(*args)` imports further modules."""
    pinned = get_affinity()
    set_affinity(get_affinity(os.getppid()))  # unpinned: all interpreters import in parallel
    try:
        load_object(build)
        if preload_hook:
            load_object(preload_hook)(*args)
    finally:
        set_affinity(pinned)


def describe_interpreter(worker: Worker, device_hook: str = "", args: tuple[object, ...] = ()) -> dict[str, Any]:
    """Return a description of this interpreter's environment: machine, libraries and settings.

    `device_hook(*args)` returns the accelerator that computes. It is called in a forked process, because this process
    must not initialise the device.
    """
    if not device_hook:
        return describe_environment()
    with FreshProcess() as process:
        return describe_environment(device=str(process.call(device_hook, *args)))


def call_function(worker: Worker, target: str, args: tuple[object, ...]) -> Any:
    """Call the function `module:function` in this interpreter and return its result."""
    return load_object(target)(*args)


def check_build(worker: Worker, build: str, args: tuple[object, ...], origin: PackageOrigin | None = None) -> None:
    """Build and call the callable once in a temporary forked process, and raise any error.

    `origin` is the place that the compared package has to be imported from.
    """
    with FreshProcess() as process:
        process.call("tessera.ab.worker:_check_build", build, args, origin)


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
    """Clean up after the callable, and end the process of the current launch."""
    global _process
    if _process is not None:
        process, _process = _process, None
        with process:
            process.call("tessera.ab.worker:_clean_up")


def measure_launch(worker: Worker, job: LaunchJob, context: RunContext) -> Record:
    """Measure one launch of a case with the run hook of its feature: in a forked process, or on all ranks together."""
    context = replace(context, worker=worker)
    if worker.size > 1 or worker.spawn == "inline":
        return _call_run_hook(job, context)
    load_object(job.run)
    if job.preload:
        load_object(job.preload)(job.case)
    with FreshProcess() as process:
        record: Record = process.call("tessera.ab.worker:_call_run_hook", job, context)
    return record


def _call_run_hook(job: LaunchJob, context: RunContext) -> Record:
    record: Record = load_object(job.run)(context, job.case, job.sampling)
    if job.origin is not None and context.worker.spawn != "inline":
        job.origin.check()
    return record


def _build(build: str, args: tuple[object, ...]) -> Callable[[], Any]:
    """Build the callable. The hook returns the callable, or a context manager that sets it up and cleans up."""
    built = load_object(build)(*args)
    if isinstance(built, AbstractContextManager):
        built = _cleanup.enter_context(built)
    timed: Callable[[], Any] = built
    return timed


def _check_build(build: str, args: tuple[object, ...], origin: PackageOrigin | None) -> None:
    try:
        _build(build, args)()
        if origin is not None:
            origin.check()
    finally:
        _clean_up()


def _clean_up() -> None:
    _cleanup.close()


def _build_and_warm_up(build: str, args: tuple[object, ...]) -> None:
    global _series
    _series = SampleSeries(_build(build, args), MACHINE_CLOCK)
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
