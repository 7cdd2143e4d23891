"""How a command goes on: a bar or a line that changes on a terminal, plain lines otherwise; on standard error.

They are drawn when there is something new to say, not by a thread: nothing else runs while something is measured.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from tessera.results.record import Case, Record
from tessera.suites.plan import START, Plan


class Progress:
    """What runs, what is left, and how long it will take. A `Listener` of a run."""

    def __init__(self, plan: Plan, done: int = 0, *, silent: bool = False) -> None:
        self._silent = silent
        self._total = len(plan.cases) * plan.launches - done
        self._launches = plan.launches
        self._finished = 0
        self._began = time.monotonic()
        self._plan, self._most = plan, plan.estimate(done)
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        if sys.stderr.isatty() and not self._silent:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[left]}"),
                console=Console(stderr=True),
                transient=True,
                auto_refresh=False,
            )
            self._bar.start()
            self._task = self._bar.add_task("starting", total=self._total, left=f"{self._left()} left")
            self._bar.refresh()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begins(self, case: Case, launch: int) -> None:
        if self._bar is not None:
            what = f"{case.feature} {case.name}"
            self._bar.update(self._task, description=what, left=f"{self._left()} left", refresh=True)

    def ends(self, record: Record, launch: int) -> None:
        self._finished += 1
        if record.status != "ok" or not record.launches:  # it is not launched again
            self._total -= self._launches - launch
        if self._bar is not None:
            left = f"{self._left()} left"
            self._bar.update(self._task, completed=self._finished, total=self._total, left=left, refresh=True)
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
        """What is planned for the rest, unless the pace so far, without the start of the workers, says longer."""
        plan = self._plan
        if not self._finished:
            return f"at most {clock(self._most)}" if plan.bounded else "unknown time"
        spent, ahead = time.monotonic() - self._began, self._total - self._finished
        pace, steady = (taken / self._finished * ahead for taken in (spent, spent - START))
        left = min(pace, max(steady, ahead * plan.longest))
        return clock(left if plan.budget is None else min(left, plan.budget - spent))


class StatusLine:
    """What is being done: one line that changes on a terminal, a line each otherwise."""

    def __enter__(self) -> Callable[[str], None]:
        self._live: Any = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live("starting", console=Console(stderr=True), auto_refresh=False, transient=True)
            self._live.start(refresh=True)
        return self._say

    def _say(self, text: str) -> None:
        if self._live is None:
            print(text, file=sys.stderr, flush=True)
        else:
            from rich.text import Text

            self._live.update(Text(text), refresh=True)  # not str: rich would take brackets for its own markup

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.stop()


def clock(seconds: float) -> str:
    """Minutes and seconds.

    >>> clock(75)
    '1:15'
    """
    whole = max(0, round(seconds))
    return f"{whole // 60}:{whole % 60:02}"
