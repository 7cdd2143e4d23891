"""How a run goes on: a bar on a terminal, plain lines otherwise; always on standard error."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

from tessera.results.record import Case, Record
from tessera.suites.plan import Plan


class Progress:
    """What runs, what is left, and how long it will take. A `Listener` of a run."""

    def __init__(self, plan: Plan, done: int = 0, *, silent: bool = False) -> None:
        self._silent = silent
        self._total = len(plan.cases) * plan.launches - done
        self._launches = plan.launches
        self._finished = 0
        self._began = time.monotonic()
        self._most = plan.estimate(done)
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        if sys.stderr.isatty() and not self._silent:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[left]}"),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task("starting", total=self._total, left=f"at most {clock(self._most)}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begins(self, case: Case, launch: int) -> None:
        if self._bar is not None:
            self._bar.update(self._task, description=f"{case.feature} {case.name}", left=f"{self._left()} left")

    def ends(self, record: Record, launch: int) -> None:
        self._finished += 1
        if self._bar is not None:
            self._bar.update(self._task, completed=self._finished, left=f"{self._left()} left")
            return
        if self._silent:
            return
        what = record.status if record.status == "ok" else f"{record.status}: {record.reason}"
        turn = f" launch {launch}/{self._launches}" if self._launches > 1 else ""
        print(
            f"[{self._finished}/{self._total}] {record.case.key}{turn}: {what} ({self._left()} left)",
            file=sys.stderr,
            flush=True,
        )

    def _left(self) -> str:
        if not self._finished:
            return f"at most {clock(self._most)}"
        spent = time.monotonic() - self._began
        return clock(min(self._most - spent, spent / self._finished * (self._total - self._finished)))


def clock(seconds: float) -> str:
    """Minutes and seconds.

    >>> clock(75)
    '1:15'
    """
    whole = max(0, round(seconds))
    return f"{whole // 60}:{whole % 60:02}"
