"""The worker processes of a run: one pool for every launch configuration that its cases require."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from tessera.errors import TesseraError
from tessera.launch import LaunchConfig, Workers
from tessera.launch.fresh import load_object
from tessera.results.record import Case
from tessera.suites.features import get_feature

PoolKey = tuple[str, str, int, int]


class WorkerPools:
    """Pools of workers by interpreter, launcher, number of workers and threads, each started at first use.

    A pool with a single worker is kept until the end of the run; the worker forks a process for every case. Pools with
    several ranks are launched again for every pass over the cases. Only the last used pool of ranks is kept, because
    idle ranks would hold memory and sockets.

    `default` is the pool of the run's launch configuration. It is started before the first case, unless all features
    choose the launch configuration themselves, so that a configuration that does not work ends the run at once. For
    this reason, sessions of features are also opened at the start, with `settings` as argument.
    """

    def __init__(self, launch: LaunchConfig, cases: Sequence[Case] = (), settings: Any = None) -> None:
        self.default = Workers(launch)
        self._features = {case.feature: get_feature(case.feature) for case in cases}
        self._settings = settings
        self._sessions: dict[str, Any] = {}
        self._single: dict[PoolKey, Workers] = {}
        self._ranks: tuple[PoolKey, Workers] | None = None

    def __enter__(self) -> WorkerPools:
        with ExitStack() as stack:
            self._stack = stack
            if self.default.job is not None:  # inside a job, all cases run on the ranks of the job
                stack.enter_context(self.default)
            elif not self._features or not all(feature.launch for feature in self._features.values()):
                self._get_pool(self.default.config)
            for name, feature in self._features.items():
                if feature.session:
                    self._sessions[name] = stack.enter_context(load_object(feature.session)(self._settings))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self._close_ranks(*exc)
        finally:
            self._stack.__exit__(*exc)  # type: ignore[arg-type]

    def get_workers(self, case: Case) -> Workers:
        """Return the workers that run a case."""
        config, job = self._configure_launch(case), self.default.job
        if job is None:
            return self._get_pool(config)
        if config.python != self.default.config.python:
            raise TesseraError(
                "a case requires another interpreter, which cannot run inside a job",
                got=config.python,
                do="start Tessera outside of the job",
            )
        if config.workers != job.size:
            raise TesseraError(
                f"this {job.kind} job has {job.size} ranks",
                got=f"a case that requires {config.workers}",
                do=f"use {job.size} ranks, or start Tessera outside of the job",
            )
        return self.default

    def get_session(self, case: Case) -> Any:
        """Return the open session of the case's feature; None if the feature has no session hook."""
        return self._sessions.get(case.feature)

    def restart(self) -> None:
        """End all ranks, so that the next pass starts new ranks. Single workers stay: they fork for every case."""
        self._close_ranks()

    def _configure_launch(self, case: Case) -> LaunchConfig:
        """Return the launch configuration of a case; an interpreter chosen by the user takes precedence."""
        feature, config = get_feature(case.feature), self.default.config
        if feature.launch:
            config = load_object(feature.launch)(case, config)
        if feature.interpreter and config.python == sys.executable:
            config = replace(config, python=load_object(feature.interpreter)(case) or config.python)
        return config

    def _get_pool(self, config: LaunchConfig) -> Workers:
        key = _get_pool_key(config)
        if key in self._single:
            return self._single[key]
        if self._ranks is not None and self._ranks[0] == key:
            return self._ranks[1]
        workers = self.default if key == _get_pool_key(self.default.config) else Workers(config)
        if config.workers == 1:
            self._single[key] = self._stack.enter_context(workers)
        else:
            self._close_ranks()
            self._ranks = (key, workers.__enter__())
        return workers

    def _close_ranks(self, *exc: object) -> None:
        if self._ranks is not None:
            (_, workers), self._ranks = self._ranks, None
            workers.__exit__(*(exc or (None, None, None)))  # type: ignore[arg-type]


def _get_pool_key(config: LaunchConfig) -> PoolKey:
    return config.python, config.spawn, config.workers, config.threads
