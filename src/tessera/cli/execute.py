"""Run a plan for a command: store, progress, summary; the same for every feature."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tessera.cli.options import command_line
from tessera.cli.progress import Progress
from tessera.errors import TesseraError
from tessera.launch.job import current_job
from tessera.results.record import Record
from tessera.results.run import Run
from tessera.results.store import Store
from tessera.suites.plan import Plan
from tessera.suites.run import Outcome, made, run_plan


def execute(
    plan: Plan, *, store_path: str | None, name: str | None, suite: str = "", resume: bool = False
) -> tuple[Run, list[Record], Outcome]:
    """Run every case of the plan that is not in the store yet, and give what the run then holds."""
    follower = not is_root()
    with Store(":memory:" if follower else store_path) as store:
        resume = resume and not follower
        run = started(store, name, suite=suite, resume=resume)
        with keeping(store, run), Progress(plan, made(plan, store, run), silent=follower) as progress:
            outcome = run_plan(plan, store, run, progress, resume=resume)
        if not outcome.left:
            run = store.finish_run(run)
        keys = {case.key for case in plan.cases}
        return run, [record for record in store.records(run) if record.case.key in keys], outcome


def started(store: Store, name: str | None, *, suite: str, resume: bool) -> Run:
    """The run of this command: a new one, or the one that it goes on with."""
    command = command_line(sys.argv)
    run = store.start_run(name, command=command, suite=suite, resume=resume)
    if run.suite != suite:
        raise TesseraError("this run is of another command", got=f"{run.name}: {run.command}", do="go on with that one")
    if resume and name is None and _without_resume(run.command) != _without_resume(command):
        raise TesseraError(
            "the newest unfinished run was started with another command",
            got=run.command,
            do=f"add --run-name {run.name} to go on with it all the same",
        )
    return run


@contextmanager
def keeping(store: Store, run: Run) -> Iterator[None]:
    """A run that breaks off keeps what had finished, and says how to go on; one that holds nothing is removed."""
    try:
        yield
    except BaseException as error:
        if not store.counts(run):  # an empty run would be the newest, and nothing could be done with it
            store.delete_run(run)
        elif isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(
                f"what had finished is stored: go on with --resume --run-name {shlex.quote(run.name)}"
            ) from None
        raise


def _without_resume(command: str) -> list[str]:
    return [word for word in command.split() if word != "--resume"]


def is_root() -> bool:
    """Whether this process prints: inside a job only rank 0 does."""
    job = current_job()
    return job is None or job.rank == 0


def closing_lines(run: Run, outcome: Outcome, records: Sequence[Record]) -> list[str]:
    """What a user should know after the table: troubles first, then where the results are."""
    lines = [f"{r.status.replace('_', ' ')}: {r.case.key}: {r.reason}" for r in records if r.status != "ok"]
    if outcome.left:
        again = f"--resume --run-name {shlex.quote(run.name)}"
        lines.append(f"{outcome.left} cases have launches that did not fit the time budget: go on with {again}")
    lines.append(f"stored as run {run.name}; see `tessera report {shlex.quote(run.name)}`")
    return lines
