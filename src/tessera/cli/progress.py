"""Progress output of a command on standard error: a bar or a status line on a terminal, plain lines otherwise.

Progress is drawn between cases and not by a thread, so that it does not disturb a measurement.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from tessera.errors import escape_controls
from tessera.results.record import Case, Record
from tessera.suites.plan import WORKER_START_SECONDS, RunPlan


class RunProgress:
    """A `RunListener` that shows the running case, the number of remaining cases, and the remaining time."""

    def __init__(self, plan: RunPlan, done: int = 0, *, silent: bool = False) -> None:
        self._silent = silent
        self._total = len(plan.cases) * plan.launches - done
        self._launches = plan.launches
        self._finished = 0
        self._began = time.monotonic()
        self._plan, self._longest = plan, plan.estimate_seconds(done)
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> RunProgress:
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
            self._task = self._bar.add_task("starting", total=self._total, left=f"{self._format_time_left()} left")
            self._bar.refresh()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def on_start(self, case: Case, launch: int) -> None:
        if self._bar is not None:
            what = escape_controls(f"{case.feature} {case.name}")
            self._bar.update(self._task, description=what, left=f"{self._format_time_left()} left", refresh=True)

    def on_end(self, record: Record, launch: int) -> None:
        self._finished += 1
        if record.status != "ok" or not record.launches:  # the case has no further launches
            self._total -= self._launches - launch
        if self._bar is not None:
            left = f"{self._format_time_left()} left"
            self._bar.update(self._task, completed=self._finished, total=self._total, left=left, refresh=True)
            return
        if self._silent:
            return
        what = record.status if record.status == "ok" else f"{record.status}: {record.reason}"
        turn = f" launch {launch}/{self._launches}" if self._launches > 1 else ""
        print(
            escape_controls(
                f"[{self._finished}/{self._total}] {record.case.key}{turn}: {what} ({self._format_time_left()} left)"
            ),
            file=sys.stderr,
            flush=True,
        )

    def _format_time_left(self) -> str:
        """Return the estimated remaining time, from the current pace and the planned time per case."""
        plan = self._plan
        if not self._finished:
            return f"at most {format_clock(self._longest)}" if plan.is_bounded else "unknown time"
        spent, ahead = time.monotonic() - self._began, self._total - self._finished
        # The first launch includes the start of the workers, which later launches do not repeat.
        pace, steady = (taken / self._finished * ahead for taken in (spent, spent - WORKER_START_SECONDS))
        left = min(pace, max(steady, ahead * plan.max_case_seconds))
        return format_clock(left if plan.budget is None else min(left, plan.budget - spent))


class StatusLine:
    """Output of the current step: a line that is overwritten on a terminal, one line per step otherwise.

    With `quiet`, steps are shown on a terminal only.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet

    def __enter__(self) -> Callable[[str], None]:
        self._live: Any = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live("starting", console=Console(stderr=True), auto_refresh=False, transient=True)
            self._live.start(refresh=True)
        return self._show

    def _show(self, text: str) -> None:
        if self._live is None:
            if not self._quiet:
                print(escape_controls(text), file=sys.stderr, flush=True)
        else:
            from rich.text import Text

            self._live.update(Text(text), refresh=True)  # a str would be parsed as markup

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.stop()


def format_clock(seconds: float) -> str:
    """Format seconds as minutes and seconds.

    >>> format_clock(75)
    '1:15'
    """
    whole = max(0, round(seconds))
    return f"{whole // 60}:{whole % 60:02}"
