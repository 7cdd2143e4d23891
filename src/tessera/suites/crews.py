"""The workers of a run: one set for every way in which its cases have to be launched."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from tessera.errors import TesseraError
from tessera.launch import LaunchConfig, Workers
from tessera.launch.fresh import resolve
from tessera.results.record import Case
from tessera.suites.features import feature

Key = tuple[str, str, int, int]


class Crews:
    """Workers by interpreter, launcher, number and threads, started when a case first needs them.

    Lone workers fork for every case and are kept to the end of the run. Ranks are launched anew for every pass over
    the cases anyway, so only those of the last case are kept: idle ones would hold memory and sockets for nothing.
    `own` are those that the run was asked for; they are started first, so that what cannot be had ends the run before
    it begins, unless all cases bring a launch of their own.
    """

    def __init__(self, launch: LaunchConfig, cases: Sequence[Case] = ()) -> None:
        self.own = Workers(launch)
        self._needs_own = not cases or not all(feature(case.feature).launch for case in cases)
        self._lone: dict[Key, Workers] = {}
        self._ranks: tuple[Key, Workers] | None = None

    def __enter__(self) -> Crews:
        with ExitStack() as stack:
            self._stack = stack
            if self.own.job is not None:  # the ranks of a job decide together, whatever their cases need
                stack.enter_context(self.own)
            elif self._needs_own:
                self._crew(self.own.config)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self._leave_ranks(*exc)
        finally:
            self._stack.__exit__(*exc)  # type: ignore[arg-type]

    def of(self, case: Case) -> Workers:
        """The workers that run a case."""
        config, job = self._config(case), self.own.job
        if job is None:
            return self._crew(config)
        if config.python != self.own.config.python:
            raise TesseraError("another interpreter cannot join this job", got=config.python)
        if config.workers != job.size:
            raise TesseraError(
                f"this {job.kind} job has {job.size} ranks",
                got=f"a case for {config.workers}",
                do=f"ask for {job.size}, or start Tessera outside of the job",
            )
        return self.own

    def restart(self) -> None:
        """New ranks for the next pass; a lone worker forks for every case and may stay."""
        self._leave_ranks()

    def _config(self, case: Case) -> LaunchConfig:
        """What the case needs; an interpreter that was asked for is kept."""
        doors, config = feature(case.feature), self.own.config
        if doors.launch:
            config = resolve(doors.launch)(case, config)
        if doors.interpreter and config.python == sys.executable:
            config = replace(config, python=resolve(doors.interpreter)(case) or config.python)
        return config

    def _crew(self, config: LaunchConfig) -> Workers:
        key = _key(config)
        if key in self._lone:
            return self._lone[key]
        if self._ranks is not None and self._ranks[0] == key:
            return self._ranks[1]
        workers = self.own if key == _key(self.own.config) else Workers(config)
        if config.workers == 1:
            self._lone[key] = self._stack.enter_context(workers)
        else:
            self._leave_ranks()
            self._ranks = (key, workers.__enter__())
        return workers

    def _leave_ranks(self, *exc: object) -> None:
        if self._ranks is not None:
            (_, workers), self._ranks = self._ranks, None
            workers.__exit__(*(exc or (None, None, None)))  # type: ignore[arg-type]


def _key(config: LaunchConfig) -> Key:
    return config.python, config.spawn, config.workers, config.threads
