"""Run a named set of cases over all features; print findings and a compact table, and write a report.

The suites `quick`, `standard` and `nightly` are part of Tessera; a TOML file of the same format is a suite as well.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tessera.axes import Option
from tessera.cli.execute import execute_plan, is_root, print_findings_and_tables, print_summary
from tessera.cli.options import (
    ALL_OPTION,
    ALLOW_CODE_OPTION,
    OUTPUT_FORMAT_NAMES,
    RANK_OPTIONS,
    RESULT_OPTIONS,
    SAMPLING_OPTIONS,
    TOTAL_OPTION,
    WORKER_OPTIONS,
    adapt_options,
    make_launch,
    make_renamed_option,
)
from tessera.cli.progress import format_clock
from tessera.errors import TesseraError
from tessera.report.blocks import Column
from tessera.report.record_tables import print_records
from tessera.report.tables import open_output, write_rows
from tessera.results.record import compute_exit_code
from tessera.suites.plan import RunPlan
from tessera.suites.suite import Suite, load_suite

OUTPUT_SUFFIXES = (".html",)
EPILOG = """\
examples:
  tessera suite quick                         findings, a compact table, and report.html
  tessera suite quick --all                   every figure of every case in the table
  tessera suite standard --run-name before    the same later as `after`, then `tessera compare before after`
  tessera suite nightly --dry-run             its cases, and how long they take
  tessera suite quick --resume                continue an interrupted run
  tessera suite my-cases.toml -o mine.html
"""


OPTIONS = (
    Option(name="suite", positional="SUITE", help="suite: quick, standard, nightly or a file"),
    Option(name="list", action="flag", help="list of the suites"),
    Option(name="dry_run", action="flag", help="list of the cases and an estimate of the time, without running them"),
    ALLOW_CODE_OPTION,
    *adapt_options(
        [option for option in SAMPLING_OPTIONS if option.name in ("launches", "quick")],
        launches={"default_text": "set by the suite; with --quick 1"},
        quick={"help": "quick, less precise run: 1 launch"},
    ),
    ALL_OPTION,
    Option(
        name="calibrate",
        action="flag",
        help="calibration of this host first, unless it is calibrated (about 15 seconds): predictions beside times",
    ),
    *adapt_options([TOTAL_OPTION], total={"default_text": "set by the suite"}),
    make_renamed_option("--budget", "--total"),
    *RANK_OPTIONS,
    *WORKER_OPTIONS,
    *RESULT_OPTIONS,
)


def run(args: argparse.Namespace) -> int:
    if args.list:
        from tessera.cli.list_command import print_listing

        return print_listing("suites", args.output_format, args.output)
    if args.suite is None:
        raise TesseraError(
            "no suite is given", allowed="quick, standard, nightly or a file", do="try `tessera suite quick`"
        )
    suite = load_suite(args.suite, allow_code=args.allow_code)
    launches = 1 if args.quick else suite.launches if args.launches is None else args.launches
    plan = RunPlan(
        cases=suite.cases,
        sampling=suite.sampling,
        launch=make_launch(args),
        launches=launches,
        budget=args.total or suite.budget,
    ).divide_budget()
    if args.dry_run:
        return _print_dry_run(suite, plan, args)
    page = Path(args.output or "report.html") if args.output_format not in OUTPUT_FORMAT_NAMES else None
    if args.calibrate and is_root():
        from tessera.cli.calibration import calibrate_if_missing

        calibrate_if_missing()
    stored, records, outcome = execute_plan(plan, args, suite=suite.name)
    if is_root():
        if page is not None and not args.all:
            print_findings_and_tables(records)
        else:
            print_records(stored, records, args.output_format, None if page else args.output)
        if page is not None:
            from tessera.suites.report import write_report

            write_report([stored.name], store_path=args.store, path=page)
        print_summary(args, stored, records, outcome)
        if page is not None:
            print(f"page with all figures and plots: {page}")
    return compute_exit_code(records)


def _print_dry_run(suite: Suite, plan: RunPlan, args: argparse.Namespace) -> int:
    with open_output(args.output) as stream:
        rows = [[case.key] for case in plan.cases]
        write_rows([Column("case")], rows, args.output_format, stream, title=f"{suite.name}: {suite.title}")
    seconds = plan.estimate_seconds()
    print(
        f"{len(plan.cases)} cases x {plan.launches} launches, at most {format_clock(seconds)} minutes "
        f"(of {format_clock(plan.budget or seconds)} in total)",
        file=sys.stderr,
    )
    return 0
