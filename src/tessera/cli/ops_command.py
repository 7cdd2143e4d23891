"""What one operator costs: time, memory, rates, and how far from the machine's limits.

Operators come from the catalogue (`tessera list ops`), from torch's own OpInfo database, or from the calls that a
network makes. Outputs and gradients are checked against a reference before anything is timed. Every case runs in a
fresh process, several times over (--launches), because the launch is what varies most.
"""

from __future__ import annotations

import argparse
import ast
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tessera.cli.execute import closing_lines, execute, exit_code, is_root
from tessera.cli.ops_tables import print_backends, print_calls, print_fit, ranked
from tessera.cli.options import (
    add_launch,
    add_output,
    add_sampling,
    add_store,
    checked,
    interpreter,
    launch_of,
    launches_of,
    names,
    sampling_of,
)
from tessera.cli.records_table import print_records
from tessera.errors import TesseraError, did_you_mean
from tessera.operators import backends, catalogue
from tessera.operators.cases import CACHES, DTYPES, FUSED, METRICS, PASSES, cases
from tessera.operators.operator import SIZES
from tessera.operators.skews import ALL_SKEWS
from tessera.results.record import Case
from tessera.suites.plan import Plan
from tessera.suites.suite import load_suite, parse_duration

SOURCES = ("catalogue", "opinfo")

EPILOG = """\
examples:
  tessera ops add matmul                      forward and backward, small and medium inputs
  tessera ops --category pooling --quick      a category; --all for everything
  tessera ops conv2d --size all --fit         what a call costs at least, and per byte or FLOP
  tessera ops softmax gelu --backend torch,compile,numpy      side by side, with speed-ups
  tessera ops add --input lhs=(1000,1) --input rhs=(1000,) --input dtype=float64
  tessera ops sort --skew sorted,constant --pass forward      inputs unlike the average
  tessera ops --from-model resnet50 --top 10  where a network's time goes
  tessera ops --source opinfo 'linalg*'       torch's own samples, scaled up
  tessera ops --suite nightly --total 2h      everything, the time divided over the cases; --resume goes on
  tessera ops add --python other-venv/bin/python      the same in another interpreter
  torchrun --nproc-per-node 2 -m tessera ops add     joins the job it is started in
"""


def configure(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("what to measure")
    what.add_argument("names", nargs="*", metavar="NAME", help="operators, by name or glob; see --list")
    what.add_argument("--category", type=names, default=[], metavar="A,B", help="all operators of these categories")
    what.add_argument("--all", action="store_true", help="every operator there is")
    what.add_argument("--source", choices=SOURCES, default="catalogue", help="where operators come from")
    what.add_argument("--from-model", metavar="MODEL", help="every operator call of a network, or of module:callable")
    what.add_argument("--batch-size", type=int, default=1, metavar="N", help="of --from-model (default: 1)")
    what.add_argument("--image-size", type=int, metavar="N", help="of --from-model (default: what it was made for)")
    what.add_argument(
        "--suite", metavar="SUITE", help="the operator cases of a suite: quick, standard, nightly, a file"
    )
    what.add_argument("--operators", metavar="FILE", help="a Python file with more operators, in a tuple OPERATORS")
    what.add_argument("--list", action="store_true", help="list the operators and end")
    on = parser.add_argument_group("on what")
    for option, allowed, default, dest in (
        ("--backend", backends.BACKENDS, "torch", None),
        ("--size", (*SIZES, "all"), "small,medium", None),
        ("--pass", PASSES, "forward,backward", "passes"),
        ("--dtype", DTYPES, "float32", None),
        ("--skew", ALL_SKEWS, "", None),
        ("--cache", CACHES, "hot", None),
        ("--fusion", FUSED, "compile,library", None),
    ):
        said = f" (default: {default})" if default else ""
        text = f"of {', '.join(allowed)}{said}"
        on.add_argument(option, type=names, default=names(default), metavar="A,B", dest=dest, help=text)
    on.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="another shape or argument, e.g. lhs=(1024,1024), kernel_size=3, dtype=float64; repeatable",
    )
    on.add_argument("--seed", type=int, default=0, help="of the random inputs (default: 0)")
    on.add_argument("--python", type=checked(interpreter), metavar="PATH", help="measure in another interpreter")
    on.add_argument(
        "--setup-backend", metavar="NAME", help="make the interpreter of a backend that has its own, and end"
    )
    shown = parser.add_argument_group("what to show")
    shown.add_argument("--metric", default="time", metavar="NAME", help="to rank and compare by (default: time)")
    shown.add_argument("--top", type=int, metavar="N", help="only the N cases with the most of the metric")
    shown.add_argument("--fit", action="store_true", help="time = overhead + n * cost, fitted over the sizes")
    add_sampling(parser)
    parser.add_argument(
        "--total", type=checked(parse_duration), metavar="TIME", help="time for everything, divided over the cases"
    )
    add_launch(parser)
    add_store(parser, writes=True)
    add_output(parser)
    parser.set_defaults(defaults={name: parser.get_default(name) for name in CHOOSING})


def run(args: argparse.Namespace) -> int:
    if args.setup_backend:
        from tessera.operators.backends.setup import setup_backend

        print(f"ready: {setup_backend(args.setup_backend)}")
        return 0
    if args.operators:
        catalogue.load(args.operators)
        os.environ[catalogue.MORE] = os.path.abspath(args.operators)  # for the workers
    if args.list:
        from tessera.cli.list_command import print_listing

        return print_listing("ops", args.form, args.output)
    _check(args)
    plan = _plan(args)
    suite = f"ops {args.suite}" if args.suite else "ops"
    stored, records, outcome = execute(plan, store_path=args.store, name=args.run, suite=suite, resume=args.resume)
    if is_root():
        shown = ranked(records, args.metric, args.top)
        if args.form == "json":
            print_records(stored, shown, args.form, args.output)
        elif args.from_model:
            print_calls(shown, records, args.form, args.output)
        elif args.fit:
            print_fit(shown, args.form, args.output)
        elif len({record.case.params.get("backend") for record in shown}) > 1:
            print_backends(shown, args.metric, args.form, args.output)
        else:
            print_records(stored, shown, args.form, args.output)
        if args.form == "terminal":
            print("\n".join(closing_lines(stored, outcome, records)))
    return exit_code(records)


# what each other source of cases takes of the options that choose them; every one takes --pass, --dtype, --seed
TAKEN = {
    "--from-model": {"batch_size", "image_size"},
    "--source opinfo": {"names", "all", "size"},
    "--suite": {"launches"},
}
CHOOSING = ("names", "all", "category", "size", "input", "skew", "cache", "fusion", "backend")


def _check(args: argparse.Namespace) -> None:
    """Refuse before anything is measured what would be refused, or left unheeded, afterwards."""
    if args.metric not in METRICS:
        raise TesseraError("--metric", got=args.metric, allowed=METRICS, do=did_you_mean(args.metric, METRICS))
    if args.top is not None and args.top < 1:
        raise TesseraError("--top", got=args.top, allowed="1 or more")
    if args.fit and not args.suite and len(set(args.size)) < 2 and "all" not in args.size:
        raise TesseraError("a fit needs two sizes or more", got=",".join(args.size), do="add --size all")
    asked = {"--from-model": args.from_model, "--source opinfo": args.source == "opinfo", "--suite": args.suite}
    for source in (source for source, given in asked.items() if given):
        for name in CHOOSING:
            given = getattr(args, name) or None  # no names are an empty list, and by default none
            if name not in TAKEN[source] and given != (args.defaults[name] or None):
                raise TesseraError(f"{source} chooses its own cases", got=f"--{name.replace('_', '-')}")


def _plan(args: argparse.Namespace) -> Plan:
    launch = launch_of(args)
    if args.python:
        launch = replace(launch, python=args.python)
    sampling, launches, total = sampling_of(args), launches_of(args), args.total
    if args.suite:
        suite = load_suite(args.suite)
        found = [case for case in suite.cases if case.feature == "ops"]
        sampling, total = suite.sampling, total or suite.budget
        launches = suite.launches if args.launches is None else launches
    else:
        found = _cases(args)
    if not found:
        raise TesseraError("nothing to measure: no operator has such a case", do="see `tessera ops --list`")
    if not args.python:
        for name in dict.fromkeys(str(case.params["backend"]) for case in found):
            backends.check_usable(name)
    return Plan(cases=tuple(found), sampling=sampling, launch=launch, launches=launches, budget=total).divided()


def _cases(args: argparse.Namespace) -> list[Case]:
    size = list(SIZES) if "all" in args.size else args.size
    if args.from_model:
        from tessera.operators.sources import model

        calls = model.cases(
            args.from_model,
            batch_size=args.batch_size,
            image_size=args.image_size,
            passes=args.passes,
            dtype=args.dtype,
            seed=args.seed,
        )
        return [*model.whole(calls), *calls]
    if not args.names and not args.all and not args.category:
        raise TesseraError("no operator named", do="name some, or --category, or --all; see `tessera ops --list`")
    wanted = ["*"] if args.all else args.names
    given = _inputs(args.input)
    dtype = [given.pop("dtype")] if "dtype" in given else args.dtype
    if args.source == "opinfo":
        from tessera.operators.sources import opinfo

        return opinfo.cases(wanted, size=size, passes=args.passes, dtype=dtype, seed=args.seed)
    return cases(
        wanted,
        category=args.category,
        backend=args.backend,
        size=size,
        passes=args.passes,
        dtype=dtype,
        skew=args.skew or ("",),
        cache=args.cache,
        fusion=args.fusion,
        inputs=given,
        seed=args.seed,
    )


def _inputs(items: Sequence[str]) -> dict[str, Any]:
    """`lhs=(1024,1024)` as a name and a value; what is no Python value is a word."""
    found = {}
    for item in items:
        name, equals, text = item.partition("=")
        if not (equals and name and text):
            raise TesseraError("--input", got=item, allowed="NAME=VALUE, for example lhs=(1024,1024)")
        try:
            found[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            found[name] = text
    return found
