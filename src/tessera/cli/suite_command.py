"""Run a named set of cases over all features; ends in a summary table and a report.

The suites `quick`, `standard` and `nightly` come with Tessera; a path to a TOML file of the same form is a suite too.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tessera.cli.execute import closing_lines, execute, is_root
from tessera.cli.options import FORMS, add_launch, add_output, add_store, checked, launch_of
from tessera.cli.progress import clock
from tessera.cli.records_table import print_records
from tessera.cli.report_command import write_report
from tessera.errors import TesseraError
from tessera.report.destination import destination
from tessera.report.tables import Column, render
from tessera.results.record import exit_code
from tessera.suites.plan import Plan
from tessera.suites.suite import Suite, load_suite, parse_duration

EPILOG = """\
examples:
  tessera suite quick                         a table, and report.html
  tessera suite standard --run-name before    the same later as `after`, then `tessera compare before after`
  tessera suite nightly --dry-run             what it would run, and how long
  tessera suite quick --resume                go on where an interrupted one stopped
  tessera suite my-cases.toml -o mine.html
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("suite", nargs="?", default=None, metavar="SUITE", help="quick, standard, nightly or a file")
    parser.add_argument("--list", action="store_true", help="list the suites and end")
    parser.add_argument("--dry-run", action="store_true", help="say what would run and how long, and end")
    parser.add_argument("--quick", action="store_true", help="one launch per case, whatever the suite says")
    parser.add_argument(
        "--budget",
        type=checked(parse_duration),
        metavar="TIME",
        help="instead of the suite's own, e.g. 10min",
    )
    parser.add_argument("--launches", type=int, metavar="N", help="instead of the suite's own")
    add_launch(parser)
    add_store(parser, writes=True)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    if args.list:
        from tessera.cli.list_command import print_listing

        return print_listing("suites", args.form, args.output)
    if args.suite is None:
        raise TesseraError(
            "no suite named", allowed="quick, standard, nightly or a file", do="try `tessera suite quick`"
        )
    suite = load_suite(args.suite)
    launches = 1 if args.quick else suite.launches if args.launches is None else args.launches
    if launches < 1:
        raise TesseraError("launches", got=launches, allowed="1 or more")
    plan = Plan(
        cases=suite.cases,
        sampling=suite.sampling,
        launch=launch_of(args),
        launches=launches,
        budget=args.budget or suite.budget,
    ).divided()
    if args.dry_run:
        return _dry_run(suite, plan, args)
    page = Path(args.output or "report.html") if args.form not in FORMS else None
    if page is not None and not page.parent.is_dir():
        raise TesseraError("no such directory for the report", got=str(page.parent), do="make it, or choose another -o")
    stored, records, outcome = execute(plan, store_path=args.store, name=args.run, suite=suite.name, resume=args.resume)
    if is_root():
        print_records(stored, records, args.form, None if page else args.output)
        if page is not None:
            write_report([stored.name], store_path=args.store, path=page)
        if args.tells:
            print("\n".join(closing_lines(stored, outcome, records)))
        if page is not None:
            print(f"report: {page}")
    return exit_code(records)


def _dry_run(suite: Suite, plan: Plan, args: argparse.Namespace) -> int:
    with destination(args.output) as stream:
        rows = [[case.key] for case in plan.cases]
        render([Column("case")], rows, args.form, stream, title=f"{suite.name}: {suite.title}")
    seconds = plan.estimate()
    print(
        f"{len(plan.cases)} cases x {plan.launches} launches, at most {clock(seconds)} minutes "
        f"(budget {clock(plan.budget or seconds)})",
        file=sys.stderr,
    )
    return 0
