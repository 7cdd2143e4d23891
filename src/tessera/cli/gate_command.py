"""Compare two revisions of a package on the same cases, and exit with 1 only if a case is certainly slower.

Both revisions are built into virtual environments of their own, or two interpreters are given. The cases of both are
measured interleaved on this machine. Cases that look changed are measured again in new interpreters, and only this
second measurement decides. The false-alarm rate holds for all cases together.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from tessera.ab.cases import Side, mark_sides, parse_variables
from tessera.ab.gate import GatedCase, GateRule, GateSides, run_gate
from tessera.ab.gate_formats import GATE_FORMATS, GateReport, format_conclusion, format_markdown_comment
from tessera.ab.revisions import WORKING_TREE, RevisionBuilder
from tessera.ab.runner import INTERPRETERS_PER_SIDE, QUICK_INTERPRETERS_PER_SIDE
from tessera.ab.section import build_gate_table
from tessera.ab.worker import PackageOrigin
from tessera.axes import Option, parse_fraction, parse_int
from tessera.cli.execute import preserve_partial_run, print_cases, start_run
from tessera.cli.options import (
    ALLOW_CODE_OPTION,
    LIST_CASES_OPTION,
    OUTPUT_OPTIONS,
    RUN_OPTIONS,
    STORE_OPTIONS,
    TOTAL_OPTION,
    WORKER_OPTIONS,
    omit_options,
    parse_interpreter,
)
from tessera.cli.progress import StatusLine
from tessera.errors import EXIT_NOTHING_COMPARABLE, EXIT_OK, EXIT_REGRESSION, TesseraError
from tessera.files import replace_text
from tessera.functions.benchmark import share_files_with_workers
from tessera.functions.cases import LocatedCase
from tessera.launch import LaunchConfig, Workers
from tessera.operators.cases import DTYPES, PASSES, cases
from tessera.operators.operator import SIZES
from tessera.report.record_tables import print_records
from tessera.report.tables import OutputFormat, open_output, write_table
from tessera.results.record import Case, Record, compute_exit_code
from tessera.results.store import Run, Store
from tessera.suites.features import get_feature
from tessera.suites.suite import load_suite

EPILOG = """\
examples:
  tessera gate --base origin/main --benchmarks benchmarks/speed.py     the working tree compared with a branch
  tessera gate --base v1.2 --head v1.3 --benchmarks benchmarks/speed.py --false-alarms 0.1%
  tessera gate add matmul --base-python old/bin/python --head-python new/bin/python
  tessera gate --base main --suite cases.toml --write markdown=comment.md --write junit=gate.xml

exit codes: 0 no case is certainly slower, 1 a case is slower, 2 bad input, 3 no case runs on both sides,
            4 a case or a build failed, 124 timed out
"""

QUICK_TOTAL, TOTAL = 30.0, 600.0
PROGRESS_SECONDS = 10.0  # interval of progress lines if standard error is not a terminal


def parse_target(text: str) -> tuple[str, str]:
    """Parse FORMAT=FILE of --write."""
    name, equals, path = text.partition("=")
    if not (equals and path) or name not in GATE_FORMATS:
        raise TesseraError(
            "invalid value of --write", got=text, allowed=f"FORMAT=FILE; formats: {', '.join(GATE_FORMATS)}"
        )
    return name, path


_declare_list = partial(Option, several=True, metavar="A,B", group="cases")
OPTIONS = (
    Option(name="names", positional="NAME", several=True, help="operators, by name or glob"),
    Option(name="base", metavar="REF", group="sides", help="Git revision to compare with"),
    Option(name="head", metavar="REF", group="sides", help="Git revision to judge", default_text="the working tree"),
    *(
        Option(
            name=f"{side}_python",
            parse=parse_interpreter,
            metavar="PYTHON",
            group="sides",
            help=f"interpreter of the {side}, in place of a revision",
        )
        for side in ("base", "head")
    ),
    *(
        Option(
            name=f"env_{side}",
            action="append",
            metavar="NAME=VALUE",
            group="sides",
            help=f"environment variable of the {side}; repeatable",
        )
        for side in ("base", "head")
    ),
    Option(
        name="repository",
        metavar="FOLDER",
        group="sides",
        default=".",
        default_text="the current folder",
        help="Git repository of the revisions",
    ),
    Option(
        name="package",
        metavar="FOLDER",
        group="sides",
        default=".",
        default_text="its root",
        help="folder of the package inside the repository",
    ),
    Option(
        name="build",
        metavar="COMMAND",
        group="sides",
        help="shell command that builds and installs a revision, run in the folder of the package",
        default_text="pip install",
    ),
    Option(
        name="own_packages",
        action="flag",
        group="sides",
        help="environments with only the dependencies that pip installs, without the packages of this interpreter",
    ),
    Option(
        name="benchmarks",
        action="append",
        metavar="FILE",
        group="cases",
        help="Python file with functions decorated with @tessera.benchmark; repeatable",
    ),
    Option(name="suite", metavar="SUITE", group="cases", help="suite or suite file, with cases of any feature"),
    replace(ALLOW_CODE_OPTION, group="cases"),
    _declare_list(name="category", help="categories of operators, in place of names"),
    _declare_list(name="size", choices=SIZES, default=("medium",), help="input sizes of operators"),
    _declare_list(name="passes", option="--pass", choices=PASSES, default=("forward",), help="passes of operators"),
    _declare_list(name="dtype", choices=DTYPES, default=("float32",), help="element types of operators"),
    LIST_CASES_OPTION,
    Option(
        name="threshold",
        parse=parse_fraction,
        metavar="FRACTION",
        default=0.03,
        default_text="3%",
        group="decision",
        help="smallest relevant change, for example 5% or 0.05",
    ),
    Option(
        name="false_alarms",
        parse=parse_fraction,
        metavar="FRACTION",
        default=0.01,
        default_text="1%",
        group="decision",
        help="probability that any unchanged case is reported as changed, over all cases together",
    ),
    replace(
        TOTAL_OPTION,
        group="sampling",
        default_text="10min; with --quick 30s",
        help="time for measuring all cases, without builds and the start of interpreters",
    ),
    Option(
        name="quick", action="flag", group="decision", help="quick, less precise run: fewer interpreters, less time"
    ),
    Option(name="threads", parse=parse_int, default=1, help="threads of each side"),
    *(replace(option, group="") for option in WORKER_OPTIONS if option.name == "allocator"),
    Option(
        name="write",
        action="append",
        parse=parse_target,
        metavar="FORMAT=FILE",
        group="output",
        help=f"further output file; formats: {', '.join(GATE_FORMATS)}; repeatable",
    ),
    *STORE_OPTIONS,
    *omit_options(RUN_OPTIONS, "resume"),
    *OUTPUT_OPTIONS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedSide:
    """One side that is ready to run: its interpreter and environment, its label, and the place of its package."""

    side: Side
    label: str
    origin: PackageOrigin | None = None


def run(args: argparse.Namespace) -> int:
    own_cases = select_own_cases(args)
    if not own_cases and not args.benchmarks:
        raise TesseraError("no case is given", do="give operators by name, --benchmarks FILE or --suite SUITE")
    for file in args.benchmarks:
        if not Path(file).is_file():
            raise TesseraError("the benchmark file does not exist", got=file)
    rule = GateRule(
        threshold=args.threshold,
        false_alarms=args.false_alarms,
        budget=args.total or (QUICK_TOTAL if args.quick else TOTAL),
    )
    _check_output_folders(args)
    with StatusLine() as show_line, open_sides(args, show_line) as opened:
        base, head = (one.side.configure_launch(threads=args.threads, allocator=args.allocator) for one in opened)
        selected = _make_gated_cases(own_cases, load_benchmark_files(args.benchmarks, head))
        if args.list:
            return print_cases([gated.case for gated in selected], args)
        sides = GateSides(
            base=base,
            head=head,
            interpreters=QUICK_INTERPRETERS_PER_SIDE if args.quick else INTERPRETERS_PER_SIDE,
            origins=(opened[0].origin, opened[1].origin),
        )
        labels = {"base": opened[0].label, "head": opened[1].label}
        with Store(args.store) as store:
            stored = start_run(store, args.run, suite="gate", resume=False)
            with preserve_partial_run(store, stored):
                results = run_gate(selected, sides, rule, _throttle(show_line))
                records = [mark_sides(result.record, labels) for result in results]
                store.add_all(stored, records)
                stored = store.finish_run(stored)
    report = GateReport(base=labels["base"], head=labels["head"], rule=rule, results=tuple(results))
    _print_report(args, stored, records, report)
    for name, path in args.write:
        replace_text(Path(path), GATE_FORMATS[name](report))
    return _choose_exit_code(report, records)


def select_own_cases(args: argparse.Namespace) -> list[Case]:
    """Return the cases of Tessera's features: operators, and the cases of the suite."""
    selected: list[Case] = []
    if args.names or args.category:
        selected += cases(args.names, category=args.category, size=args.size, passes=args.passes, dtype=args.dtype)
    if args.suite:
        selected += load_suite(args.suite, allow_code=args.allow_code).cases
    return selected


def load_benchmark_files(files: Sequence[str], head: LaunchConfig) -> list[LocatedCase]:
    """Load benchmark files in an interpreter of the head, which has the package that they import."""
    if not files:
        return []
    share_files_with_workers(files)
    with Workers(head) as workers:
        located: list[LocatedCase] = workers.run("tessera.functions.cases:load_files", list(files))[0]
    return located


def _make_gated_cases(own_cases: Iterable[Case], located: Iterable[LocatedCase]) -> list[GatedCase]:
    """Return all cases without repetition, with their features and sources."""
    sources = dict.fromkeys((case.key for case in own_cases), None) | {
        one.case.key: (os.path.relpath(one.file), one.line) for one in located
    }
    distinct = {case.key: case for case in (*own_cases, *(one.case for one in located))}
    return [
        GatedCase(case=case, feature=get_feature(case.feature), source=sources[key]) for key, case in distinct.items()
    ]


@contextmanager
def open_sides(args: argparse.Namespace, show: Callable[[str], None]) -> Iterator[tuple[OpenedSide, OpenedSide]]:
    """Build the revisions into a temporary folder, or take the given interpreters."""
    variables = {side: parse_variables(f"--env-{side}", getattr(args, f"env_{side}")) for side in ("base", "head")}
    given = [side for side in ("base", "head") if getattr(args, f"{side}_python")]
    if given and (args.base or args.head):
        raise TesseraError("revisions and interpreters cannot be combined", do="give --base, or both interpreters")
    if not args.base:
        if not given and not any(variables.values()):
            raise TesseraError("nothing to compare with", do="give --base REF, or --base-python and --head-python")
        sides = [
            Side(python=getattr(args, f"{side}_python") or sys.executable, env=variables[side])
            for side in ("base", "head")
        ]
        yield (
            OpenedSide(side=sides[0], label=f"base ({sides[0].label})"),
            OpenedSide(side=sides[1], label=f"head ({sides[1].label})"),
        )
        return
    with TemporaryDirectory(prefix="tessera-gate-") as folder:
        builder = RevisionBuilder(
            repository=Path(args.repository),
            folder=Path(folder),
            package=args.package,
            command=args.build or "",
            share_packages=not args.own_packages,
        )
        opened = []
        for name, revision in (("base", args.base), ("head", args.head or WORKING_TREE)):
            show(f"building the {name}: {revision or 'the working tree'}")
            built = builder.build(name, revision)
            # Without PYTHONPATH: it could name the folder of the package itself.
            side = Side(python=built.python, env={"PYTHONPATH": "", **variables[name]})
            label = f"{revision or 'working tree'} ({built.commit})"
            opened.append(OpenedSide(side=side, label=label, origin=built.origin))
        yield opened[0], opened[1]


def _check_output_folders(args: argparse.Namespace) -> None:
    for _, path in args.write:
        if not Path(path).resolve().parent.is_dir():
            raise TesseraError("the folder of the output file does not exist", got=path)


def _throttle(show: Callable[[str], None]) -> Callable[[str], None]:
    """Return a function that shows fewer messages of the same kind if standard error is not a terminal."""
    if sys.stderr.isatty():
        return show
    shown: dict[str, float] = {}

    def show_sometimes(text: str) -> None:
        kind = text.partition(":")[0]
        if time.monotonic() - shown.get(kind, -PROGRESS_SECONDS) >= PROGRESS_SECONDS:
            shown[kind] = time.monotonic()
            show(text)

    return show_sometimes


def _print_report(args: argparse.Namespace, stored: Run, records: list[Record], report: GateReport) -> None:
    if args.output_format == "markdown":
        with open_output(args.output) as stream:
            stream.write(format_markdown_comment(report))
        return

    def write(_: object, output_format: OutputFormat, stream: object) -> None:
        write_table(build_gate_table(records, report.base, report.head), output_format, stream)  # type: ignore[arg-type]

    print_records(stored, records, args.output_format, args.output, write)
    if args.show_summary:
        failed = [f"{r.record.status}: {r.label}: {r.record.reason}" for r in report.results if r.record.status != "ok"]
        print("\n".join([*failed, *format_conclusion(report), f"stored as run {stored.name}"]))


def _choose_exit_code(report: GateReport, records: list[Record]) -> int:
    if report.slower:
        return EXIT_REGRESSION
    if report.failed:
        return compute_exit_code(records)
    return EXIT_OK if report.compared else EXIT_NOTHING_COMPARABLE
