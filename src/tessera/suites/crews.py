"""The workers of a run: one set for every interpreter that its cases need."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import replace

from tessera.errors import TesseraError
from tessera.launch import LaunchConfig, Workers
from tessera.launch.fresh import resolve
from tessera.results.record import Case
from tessera.suites.features import feature


class Crews:
    """Workers by interpreter, started when a case first needs them and kept to the end of the run."""

    def __init__(self, launch: LaunchConfig) -> None:
        self._launch = launch
        self._crews: dict[str, Workers] = {}

    def __enter__(self) -> Crews:
        with ExitStack() as stack:
            self.own = stack.enter_context(Workers(self._launch))
            self._crews[self._launch.python] = self.own
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.__exit__(*exc)  # type: ignore[arg-type]

    def of(self, case: Case) -> Workers:
        """The workers that run a case."""
        python = self._python(case)
        if python not in self._crews:
            if self.own.job is not None:
                raise TesseraError("another interpreter cannot join this job", got=python)
            self._crews[python] = self._stack.enter_context(Workers(replace(self._launch, python=python)))
        return self._crews[python]

    def _python(self, case: Case) -> str:
        """The interpreter that was asked for, or else the one that the case needs."""
        named = feature(case.feature).interpreter
        if self._launch.python != sys.executable or not named:
            return self._launch.python
        needed: str = resolve(named)(case)
        return needed or self._launch.python

    def restart(self) -> None:
        """New ranks everywhere; a lone worker forks for every case and may stay."""
        if self._launch.workers > 1:
            for crew in self._crews.values():
                crew.restart()
