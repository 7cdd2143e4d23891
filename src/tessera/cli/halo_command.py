"""What the borders of an image that is cut over ranks cost, and whether the result is exact.

Each rank has a tile of the image, and convolutions read pixels of the neighbours' tiles: the halo. `exchange` times
moving it, `compute` the convolution with it, `validate` compares every pixel with the uncut convolution, `plan` draws
who sends what to whom, `scale` predicts larger machines. As many ranks are started as there are parts; inside a
torchrun or mpiexec job the command joins it instead.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from importlib import import_module
from typing import Any

from tessera.cli.execute import closing_lines, execute, is_root
from tessera.cli.halo_options import ITERATIONS, WARMUP, add_case_options, add_run_options, axes_of
from tessera.cli.halo_tables import print_cases, print_halo
from tessera.cli.options import launch_of, launches_of, sampling_of
from tessera.errors import REGRESSION, TesseraError
from tessera.launch.job import current_job
from tessera.measure.samples import Sampling
from tessera.report.tables import Column, render
from tessera.results.record import Case, exit_code
from tessera.spatial.bench.limit import time_limit
from tessera.spatial.cases import BENCHMARKS, cases
from tessera.suites.plan import Plan
from tessera.transport.choose import usable

# Subcommands that run no ranks: each a module with configure(parser) and run(args).
OTHERS = {
    "plan": ("tessera.cli.halo_plan", "who sends what to whom, as a table and a picture; runs nothing"),
    "scale": ("tessera.cli.halo_scale", "predicted strong and weak scaling on a machine"),
}

EPILOG = """\
examples:
  tessera halo exchange --image-size 1024 --in-channels 16 --num-spatial-parts 2 --slice-method vertical
  tessera halo exchange --in-channels 16 --sweep image-size=256,512,1024 --sweep transport=gloo,shared
  tessera halo compute --image-size 512 --in-channels 16 --out-channels 16 --num-spatial-parts 2 --slice-method 1x2
  tessera halo validate --image-size 37x61 --kernel 5 --stride 3 --dilation 2 --num-spatial-parts 6 --slice-method 2x3
  tessera halo plan --image-size 64 --num-spatial-parts 4 -o plan.svg
  torchrun --nproc-per-node 4 -m tessera halo validate --image-size 256      joins the job it is started in

Times are of 10 warm-ups and 100 iterations, unless --target, --budget or --quick ask for another way to sample.
An iteration begins with a barrier and is as slow as its slowest rank.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--list", action="store_true", help="list the benchmarks and end")
    parsers = parser.add_subparsers(dest="benchmark", metavar="WHAT", title="what to do")
    look: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}
    for name, text in BENCHMARKS.items():
        one = parsers.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.", epilog=EPILOG, **look)
        add_case_options(one, name)
        add_run_options(one, name)
        one.set_defaults(handler=_benchmark)
    for name, (module, text) in OTHERS.items():
        other = import_module(module)
        one = parsers.add_parser(name, help=text, description=other.__doc__, epilog=other.EPILOG, **look)
        other.configure(one)
        one.set_defaults(handler=other.run)


def run(args: argparse.Namespace) -> int:
    if args.benchmark is None:
        if not args.list:
            raise TesseraError(
                "no halo benchmark named", allowed=[*BENCHMARKS, *OTHERS], do="see `tessera halo --help`"
            )
        rows = [*BENCHMARKS.items(), *((name, text) for name, (_, text) in OTHERS.items())]
        render([Column("name"), Column("what")], rows, "terminal", sys.stdout)
        return 0
    return int(args.handler(args))


def _benchmark(args: argparse.Namespace) -> int:
    axes, notes = axes_of(args, args.benchmark)
    found = cases([args.benchmark], **axes)
    if is_root():
        for note in notes:
            print(f"note: {note}", file=sys.stderr)
    if args.list:
        return print_cases(found, args.form, args.output)
    plan = _plan(args, found)
    stored, records, outcome = execute(
        plan, store_path=args.store, name=args.run, suite=f"halo {args.benchmark}", resume=args.resume
    )
    if is_root():
        print_halo(stored, records, args.form, args.output)
        if args.tells:
            print("\n".join(closing_lines(stored, outcome, records)))
    if any(record.metrics["failed_ranks"].value for record in records if "failed_ranks" in record.metrics):
        return REGRESSION
    return exit_code(records)


def _plan(args: argparse.Namespace, found: list[Case]) -> Plan:
    job = current_job()
    parts = sorted({int(case.params["num_spatial_parts"]) for case in found})
    if job is not None and parts != [job.size]:
        raise TesseraError(
            f"this {job.kind} job has {job.size} ranks",
            got=f"{', '.join(map(str, parts))} parts",
            do=f"cut into --num-spatial-parts {job.size}, or start Tessera outside of the job",
        )
    if job is None:
        _check_transports({str(case.params["transport"]) for case in found})
    launch, sampling, launches = launch_of(args), Sampling(), 1
    if args.benchmark != "validate":
        sampling, launches = _sampling(args), launches_of(args)
    if launch.time_limit is None:
        limits = [time_limit(case, sampling) for case in found]
        launch = replace(launch, time_limit=max((limit for limit in limits if limit is not None), default=None))
    return Plan(cases=tuple(found), sampling=sampling, launch=launch, launches=launches)


def _sampling(args: argparse.Namespace) -> Sampling:
    """A fixed number of iterations, unless another way to sample is asked for."""
    sampling = sampling_of(args)
    if args.target or args.budget or args.quick:
        return sampling
    return replace(
        sampling,
        warmup=WARMUP if args.warmup is None else args.warmup,
        iterations=ITERATIONS if args.iterations is None else args.iterations,
    )


def _check_transports(asked: set[str]) -> None:
    """Refuse a transport whose ranks cannot be started here, before anything is."""
    for way in usable():
        if way.name in asked and not way.usable:
            raise TesseraError(
                f"transport {way.name} cannot be used here: {way.how}", do="see `tessera list transports`"
            )
