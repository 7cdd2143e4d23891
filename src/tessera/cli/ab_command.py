"""Compare two interpreters or two environments on the same operators.

Both interpreters stay alive and are measured in interleaved short bursts on one core. The measuring process is forked
again many times, because two launches of identical code differ. The verdict follows from the ratios of the launches:
slower, faster, same, or unresolved with the minimum detectable change.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace
from functools import partial

from tessera.ab.bench import compute_joint_confidence
from tessera.ab.cases import BURST_TIME_LIMIT, Side, pair_cases, parse_variables
from tessera.ab.runner import INTERPRETERS_PER_SIDE, QUICK_INTERPRETERS_PER_SIDE, ABSettings
from tessera.ab.section import write_comparison
from tessera.axes import Option, parse_fraction, parse_int, split_list
from tessera.cli.execute import execute_plan
from tessera.cli.list_command import list_catalogue, print_list
from tessera.cli.options import RESULT_OPTIONS, WORKER_OPTIONS, check_devices, parse_interpreter
from tessera.device import CPU, parse_device
from tessera.errors import EXIT_OK, EXIT_REGRESSION, TesseraError
from tessera.launch import LaunchConfig
from tessera.measure.samples import Sampling
from tessera.operators import catalogue
from tessera.operators.backends import check_usable, find_own_python, get_backend_entry
from tessera.operators.cases import DTYPES, PASSES, cases
from tessera.operators.operator import SIZES
from tessera.report.record_tables import print_records
from tessera.results.record import Case, compute_exit_code
from tessera.suites.features import get_feature
from tessera.suites.plan import RunPlan
from tessera.suites.suite import parse_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """The effort of a comparison: seconds per case, interpreters per side, and smallest relevant change (fraction)."""

    budget: float
    interpreters: int
    threshold: float


THOROUGH_EFFORT = Effort(budget=20.0, interpreters=INTERPRETERS_PER_SIDE, threshold=0.01)
QUICK_EFFORT = Effort(
    budget=1.0, interpreters=QUICK_INTERPRETERS_PER_SIDE, threshold=0.02
)  # three interpreters may differ by 1 %

EPILOG = """\
examples:
  tessera ab add matmul --b other-venv/bin/python           this interpreter compared with another
  tessera ab conv2d --env-b ATEN_CPU_CAPABILITY=default     this interpreter with and without a variable
  tessera ab conv2d --device cuda:0 --b other-venv/bin/python   the same on an accelerator
  tessera ab add                                            this interpreter with itself: the noise of this machine

exit codes: 0 nothing slower, 1 an operator is slower in B, 2 bad input
"""


def parse_names(text: str) -> list[str]:
    """Parse a comma-separated list of names; an empty list is an error."""
    names = split_list(text)
    if not names:
        raise TesseraError("the list is empty", got=text, allowed="one name or more")
    return names


_declare_list = partial(Option, several=True, parse_list=parse_names, metavar="A,B")
OPTIONS = (
    Option(name="names", positional="NAME", several=True, help="operators, by name or glob"),
    Option(name="category", several=True, metavar="A,B", help="categories of operators, in place of names"),
    _declare_list(name="backend", default=("torch",), help="backends that run the operators"),
    Option(name="operators", metavar="FILE", help="Python file with more operators, in a tuple OPERATORS"),
    Option(name="list", action="flag", help="list of the selected operators (default: all), without running them"),
    *(
        option
        for side in "ab"
        for option in (
            Option(
                name=side,
                parse=parse_interpreter,
                metavar="PYTHON",
                default=sys.executable,
                default_text="the interpreter of this command",
                help=f"interpreter of side {side.upper()}",
            ),
            Option(
                name=f"env_{side}",
                action="append",
                metavar="NAME=VALUE",
                help=f"environment variable of side {side.upper()}; repeatable",
            ),
        )
    ),
    _declare_list(name="size", choices=SIZES, default=("medium",), help="input sizes"),
    _declare_list(name="passes", option="--pass", choices=PASSES, default=("forward",), help="passes to time"),
    _declare_list(name="dtype", choices=DTYPES, default=("float32",), help="element types"),
    Option(
        name="device",
        parse=parse_device,
        default=CPU,
        help="device of both sides: cpu, or torch's accelerator (cuda:0, xpu, …); times are the host's, with a "
        "synchronisation",
    ),
    Option(
        name="budget",
        parse=parse_duration,
        metavar="TIME",
        default_text="20s; with --quick 1s",
        help="maximum time per operator; sampling ends earlier when the ratio is precise to the threshold",
    ),
    Option(name="quick", action="flag", help="quick, less precise run: fewer interpreters, less time"),
    Option(
        name="threshold",
        parse=parse_fraction,
        metavar="FRACTION",
        default_text="1%; with --quick 2%",
        help="smallest relevant change, for example 5% or 0.05",
    ),
    Option(name="threads", parse=parse_int, default=1, help="threads of each side"),
    *(replace(option, group="") for option in WORKER_OPTIONS if option.name == "allocator"),
    *RESULT_OPTIONS,
)


def run(args: argparse.Namespace) -> int:
    if args.operators:
        catalogue.use_operator_file(args.operators)
    if args.list:
        listed = catalogue.find_operators(args.names or ([] if args.category else ["*"]), args.category)
        return print_list(list_catalogue(listed), args.output_format, args.output)
    if not args.names and not args.category:
        raise TesseraError("no operator is given", do="give names or --category; see `tessera ab --list`")
    operators = cases(
        args.names,
        category=args.category,
        backend=args.backend,
        size=args.size,
        passes=args.passes,
        dtype=args.dtype,
        device=[args.device],
    )
    if not operators:
        raise TesseraError(
            "no operator has a case with these options", do="see `tessera ab --help` for sizes, passes and dtypes"
        )
    _check_backends(args)
    a, b = make_sides(args)
    stored, records, _ = execute_plan(make_plan(args, tuple(pair_cases(operators, a, b))), args, suite="ab")
    print_records(stored, records, args.output_format, args.output, write_comparison)
    slower = any(record.verdict == "slower" for record in records)
    return compute_exit_code(records) or (EXIT_REGRESSION if slower else EXIT_OK)


def make_plan(args: argparse.Namespace, selected: tuple[Case, ...]) -> RunPlan:
    """Return the run plan of a comparison.

    Sampling stops when the confidence interval is as narrow as the comparison threshold. The confidence level is
    corrected for multiple comparisons.
    """
    effort = QUICK_EFFORT if args.quick else THOROUGH_EFFORT
    a, b = (side.configure_launch(threads=args.threads, allocator=args.allocator) for side in make_sides(args))
    return RunPlan(
        cases=selected,
        sampling=Sampling(
            budget=effort.budget if args.budget is None else args.budget,
            target=effort.threshold if args.threshold is None else args.threshold,
            confidence=compute_joint_confidence(len(selected)),
        ),
        launch=LaunchConfig(time_limit=24 * BURST_TIME_LIMIT),  # per case; every burst has its own limit
        settings=ABSettings(a=a, b=b, hooks=get_feature("ops"), interpreters=effort.interpreters),
    )


def make_sides(args: argparse.Namespace) -> tuple[Side, Side]:
    """Return the two sides of the comparison: interpreter and environment of A, then of B."""
    a, b = (
        Side(python=getattr(args, name), env=parse_variables(f"--env-{name}", getattr(args, f"env_{name}")))
        for name in "ab"
    )
    return a, b


def _check_backends(args: argparse.Namespace) -> None:
    """Raise an error for a backend or device that neither side can use, before the interpreters are started."""
    if sys.executable in (args.a, args.b):
        check_devices([args.device])
    for name in args.backend if sys.executable in (args.a, args.b) else ():
        check_usable(name)
        if own := find_own_python(name):
            raise TesseraError(
                f"{get_backend_entry(name).title} requires its own interpreter on both sides",
                do=f"add --a {own} --b {own}",
            )
