"""`Workers`: call a function on every worker, inline, in processes launched here, or in a job that the user started."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, Protocol

from tessera.errors import TesseraError, TimedOut
from tessera.launch.config import MAX_TIME_LIMIT, LaunchConfig
from tessera.launch.job import Job, get_current_job
from tessera.launch.worker import Worker, call_function
from tessera.measure.sync import SINGLE_RANK


class WorkerGroup(Protocol):
    """The interface of the workers of one launch: inline, launched processes, or ranks of a job."""

    alive: bool

    def run(self, target: str, args: tuple[Any, ...], limit: float | None) -> list[Any]: ...

    def close(self, *, kill: bool) -> None: ...


class Workers:
    """Workers that stay alive for any number of calls.

    `with Workers(LaunchConfig(workers=2)) as workers: workers.run("package.module:function", 3)` calls
    `function(worker, 3)` on both workers and returns the results by rank. Imports and caches are kept between calls. If
    a worker dies, hangs or exceeds the time limit, all workers are ended, and the next call starts new ones.

    Inside a torchrun, mpiexec or Slurm job of the same size nothing is launched: this process is one of the ranks.
    Every rank has to make the same calls, and every rank gets the results of all ranks. `is_root` is true on rank 0,
    which stores the results.
    """

    def __init__(self, config: LaunchConfig) -> None:
        self.config = config
        self.job: Job | None = None if config.spawn == "inline" else get_current_job()
        self._group: WorkerGroup | None = None

    @property
    def is_root(self) -> bool:
        """Whether this process stores and prints results: outside a job, or as rank 0 of a job."""
        return self.job is None or self.job.rank == 0

    def __enter__(self) -> Workers:
        self._group = self._start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if self._group is not None:
            self._group.close(kill=kind is not None)
            self._group = None

    def run(self, target: str, *args: Any, time_limit: float | None = None) -> list[Any]:
        """Call `function(worker, *args)` on every worker and return the results by rank.

        `time_limit` in seconds replaces the limit of the configuration. A TesseraError of a worker is raised unchanged,
        any other exception as BenchmarkFailed. If a rank dies or hangs, all ranks are ended.
        """
        module, colon, name = target.partition(":")
        if not (colon and module and name):
            raise TesseraError("invalid name of a worker function", got=target, allowed="package.module:function")
        if self._group is None:
            raise TesseraError("the workers are not started", do="use `with Workers(config) as workers:`")
        if time_limit is not None and time_limit <= 0:
            raise TesseraError("invalid time limit", got=time_limit, allowed="seconds above 0")
        if not self._group.alive:
            self._group = self._start()
        limit = self.config.time_limit if time_limit is None else time_limit
        return self._group.run(target, args, None if limit is None else min(limit, MAX_TIME_LIMIT))

    def restart(self) -> None:
        """End the workers and start new workers; inside a job, do not restart the ranks."""
        if self.job is None and self._group is not None:
            self._group.close(kill=False)
            self._group = self._start()

    def _start(self) -> WorkerGroup:
        if self.config.spawn == "inline":
            return InlineGroup(self.config)
        if self.job is not None:
            from tessera.launch.job_group import JobGroup

            return JobGroup(self.config, self.job)
        from tessera.launch.process_group import ProcessGroup

        return ProcessGroup(self.config)


class InlineGroup:
    """One worker in the calling process. The number of threads is set; allocator and pinning are not changed."""

    alive = True

    def __init__(self, config: LaunchConfig) -> None:
        self._worker = Worker(rank=0, size=1, spawn="inline", cpus=(), threads=config.threads, sync=SINGLE_RANK)

    def run(self, target: str, args: tuple[Any, ...], limit: float | None) -> list[Any]:
        with _restore_torch_threads(), _limit_time(limit):
            reply = call_function(self._worker, target, args)
        if reply.error is not None:
            raise reply.error
        return [reply.value]

    def close(self, *, kill: bool) -> None:
        return None


@contextlib.contextmanager
def _restore_torch_threads() -> Iterator[None]:
    """Restore torch's number of threads at the end of the block."""
    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch is not None else None
    try:
        yield
    finally:
        if torch is not None:
            torch.set_num_threads(before)


@contextlib.contextmanager
def _limit_time(limit: float | None) -> Iterator[None]:
    """Raise TimedOut in the body after `limit` seconds; a running call of native code is completed first.

    Python runs signal handlers in the main thread only, so the limit has no effect in other threads.
    """
    if limit is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def raise_timeout(number: int, frame: FrameType | None) -> None:
        raise TimedOut(f"no answer within the time limit of {limit:g} s from the inline worker")

    before = signal.signal(signal.SIGALRM, raise_timeout)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
