"""Run the plan of a command: store the records, show progress, and print a summary."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tessera.cli.options import format_command_line, get_launches, make_launch, make_sampling
from tessera.cli.progress import RunProgress
from tessera.errors import EXIT_OK, TesseraError, escape_controls
from tessera.launch.job import get_current_job
from tessera.report.blocks import Table
from tessera.report.record_tables import RecordWriter, print_records, write_records_table
from tessera.report.tables import print_table
from tessera.results.record import Case, Record
from tessera.results.store import Run, Store
from tessera.suites.plan import RunPlan
from tessera.suites.run import RunOutcome, count_stored_launches, run_plan

MAX_TEXT_WIDTH = 100  # characters of a line of text


def make_plan(args: argparse.Namespace, cases: Sequence[Case], **fields: Any) -> RunPlan:
    """Return the plan of cases from the sampling and worker options; `fields` adds or replaces fields of the plan."""
    plan = RunPlan(
        cases=tuple(cases), sampling=make_sampling(args), launch=make_launch(args), launches=get_launches(args)
    )
    return replace(plan, **fields)


def execute_plan(plan: RunPlan, args: argparse.Namespace, *, suite: str) -> tuple[Run, list[Record], RunOutcome]:
    """Run every case of the plan that is not in the store yet; return the run, its records and the outcome."""
    follower = not is_root()
    with Store(":memory:" if follower else args.store) as store:
        resume = args.resume and not follower
        run = start_run(store, args.run, suite=suite, resume=resume)
        done = count_stored_launches(plan, store, run)
        with preserve_partial_run(store, run), RunProgress(plan, done, silent=follower) as progress:
            outcome = run_plan(plan, store, run, progress, resume=resume)
        if not outcome.unfinished:
            run = store.finish_run(run)
        keys = {case.key for case in plan.cases}
        return run, [record for record in store.read_records(run) if record.case.key in keys], outcome


def start_run(store: Store, name: str | None, *, suite: str, resume: bool) -> Run:
    """Return the run of this command: a new run, or with `resume` an unfinished one."""
    command = format_command_line(sys.argv)
    run = store.start_run(name, command=command, suite=suite, resume=resume)
    if run.suite != suite:
        raise TesseraError(
            "the run was started by another command", got=f"{run.name}: {run.command}", do="resume it with that command"
        )
    if resume and name is None and _remove_resume_option(run.command) != _remove_resume_option(command):
        raise TesseraError(
            "the newest unfinished run was started with another command",
            got=run.command,
            do=f"add --run-name {run.name} to resume it anyway",
        )
    return run


@contextmanager
def preserve_partial_run(store: Store, run: Run) -> Iterator[None]:
    """Keep the finished records of an interrupted run and print the command that resumes it; delete an empty run."""
    try:
        yield
    except BaseException as error:
        if not store.count_statuses(run):  # otherwise an empty run would become `latest`
            store.delete_run(run)
        elif isinstance(error, KeyboardInterrupt):
            error.args = (f"finished cases are stored; resume with --resume --run-name {shlex.quote(run.name)}",)
        raise


def print_cases(cases: Sequence[Case], args: argparse.Namespace) -> int:
    """Print the keys of cases."""
    print_table(Table(["case"], [[case.key] for case in cases]), args.output_format, args.output)
    return EXIT_OK


def execute_and_print(
    plan: RunPlan, args: argparse.Namespace, *, suite: str, write: RecordWriter = write_records_table
) -> list[Record]:
    """Run a plan, print its records and a summary, and return the records."""
    run, records, outcome = execute_plan(plan, args, suite=suite)
    if is_root():
        print_records(run, records, args.output_format, args.output, write)
        print_summary(args, run, records, outcome)
    return records


def _remove_resume_option(command: str) -> list[str]:
    return [word for word in command.split() if word != "--resume"]


def is_root() -> bool:
    """Return whether this process prints output: outside a job, or as rank 0 of a job."""
    job = get_current_job()
    return job is None or job.rank == 0


def print_findings_and_tables(records: Sequence[Record]) -> None:
    """Print the findings of a run and its compact tables."""
    from tessera.report.compact_tables import write_compact_tables
    from tessera.report.findings import format_findings
    from tessera.suites.report import find_results

    width = min(MAX_TEXT_WIDTH, shutil.get_terminal_size((MAX_TEXT_WIDTH, 24)).columns)
    print("\n".join([*format_findings(find_results(records), width), ""]))
    write_compact_tables(records, sys.stdout)


def print_summary(args: argparse.Namespace, run: Run, records: Sequence[Record], outcome: RunOutcome) -> None:
    """Print the lines after a table on the terminal: failed cases, cases not run yet, and the name of the run."""
    if not args.show_summary:
        return
    lines = [f"{r.status.replace('_', ' ')}: {r.case.key}: {r.reason}" for r in records if r.status != "ok"]
    if outcome.unfinished:
        options = f"--resume --run-name {shlex.quote(run.name)}"
        lines.append(
            f"{outcome.unfinished} cases are not finished, because the total time was used up: resume with {options}"
        )
    name = shlex.quote(run.name)
    lines.append(f"stored as run {run.name}; see `tessera show {name} --all` or `tessera report {name}`")
    print("\n".join(map(escape_controls, lines)))
