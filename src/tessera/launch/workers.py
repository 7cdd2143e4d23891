"""The launcher: runs a function on every worker, wherever the workers are."""

from __future__ import annotations

from typing import Any, Protocol

from tessera.errors import TesseraError
from tessera.launch.config import LaunchConfig
from tessera.launch.job import Job, current_job


class Crew(Protocol):
    """Workers that are there: inline, launched, or joined."""

    alive: bool

    def run(self, target: str, args: tuple[Any, ...], limit: float | None) -> list[Any]: ...

    def close(self, *, kill: bool) -> None: ...


class Workers:
    """Workers that stay alive for any number of calls.

    `with Workers(LaunchConfig(workers=2)) as workers: workers.run("package.module:function", 3)` calls
    `function(worker, 3)` on both and returns their results by rank. Imports and caches are kept between
    calls. Workers that had to be ended, because one died, hung or ran out of time, are started anew by the
    next call.

    Inside a torchrun, mpiexec or Slurm job of the same size nothing is launched: this process joins as the
    rank it is, every rank calls `run` alike, and all get the full list. `is_root` tells the one that should
    write it down.
    """

    def __init__(self, config: LaunchConfig) -> None:
        self.config = config
        self.job: Job | None = None if config.spawn == "inline" else current_job()
        self._crew: Crew | None = None

    @property
    def is_root(self) -> bool:
        """Whether this process is the one to store and print results."""
        return self.job is None or self.job.rank == 0

    def __enter__(self) -> Workers:
        self._crew = self._muster()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if self._crew is not None:
            self._crew.close(kill=kind is not None)
            self._crew = None

    def run(self, target: str, *args: Any, time_limit: float | None = None) -> list[Any]:
        """Call `function(worker, *args)` on every worker, and give the results by rank.

        `time_limit` in seconds replaces the one of the config. A TesseraError of a worker is raised as it is,
        anything else as BenchmarkFailed; a rank that dies or hangs ends all the others.
        """
        module, colon, name = target.partition(":")
        if not (colon and module and name):
            raise TesseraError("not the name of a worker function", got=target, allowed="package.module:function")
        if self._crew is None:
            raise TesseraError("the workers are not started", do="use them in a `with` block")
        if time_limit is not None and time_limit <= 0:
            raise TesseraError("a time limit is positive", got=time_limit, allowed="seconds above 0")
        if not self._crew.alive:
            self._crew = self._muster()
        return self._crew.run(target, args, self.config.time_limit if time_limit is None else time_limit)

    def restart(self) -> None:
        """End the workers and start new ones; ranks of a job that was joined stay what they are."""
        if self.job is None and self._crew is not None:
            self._crew.close(kill=False)
            self._crew = self._muster()

    def _muster(self) -> Crew:
        if self.config.spawn == "inline":
            from tessera.launch.inline import Inline

            return Inline(self.config)
        if self.job is not None:
            from tessera.launch.joined import Joined

            return Joined(self.config, self.job)
        from tessera.launch.launched import Launched

        return Launched(self.config)
