"""What one operator costs: time, memory, rates, and how far from the machine's limits.

Every case runs in a fresh process, several times over (--launches), because the launch is what varies most.
"""

from __future__ import annotations

import argparse

from tessera.cli.execute import closing_lines, execute, exit_code
from tessera.cli.options import (
    add_launch,
    add_output,
    add_sampling,
    add_store,
    launch_of,
    launches_of,
    names,
    sampling_of,
)
from tessera.cli.records_table import print_records
from tessera.errors import TesseraError
from tessera.launch.job import current_job
from tessera.operators.cases import DTYPES, PASSES, cases
from tessera.operators.catalogue import SIZES
from tessera.suites.run import Plan

EPILOG = """\
examples:
  tessera ops add matmul                      forward and backward, small and medium inputs
  tessera ops conv2d --size large --pass forward --threads 2
  tessera ops '*' --quick --json -o ops.json  everything, briefly, as a file that `tessera compare` reads
  tessera ops add --ranks 2 --launcher mpiexec --warmup 10 --iterations 100
  torchrun --nproc-per-node 2 -m tessera ops add     joins the job it is started in
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="operators, by name or glob; see --list")
    parser.add_argument("--all", action="store_true", help="every operator of the catalogue")
    parser.add_argument("--list", action="store_true", help="list the operators and end")
    for option, allowed, default in (
        ("--size", SIZES, "small,medium"),
        ("--pass", PASSES, "forward,backward"),
        ("--dtype", DTYPES, "float32"),
    ):
        parser.add_argument(
            option,
            type=names,
            default=names(default),
            metavar="A,B",
            dest="passes" if option == "--pass" else None,
            help=f"of {', '.join(allowed)} (default: {default})",
        )
    parser.add_argument("--seed", type=int, default=0, help="of the random inputs (default: 0)")
    add_sampling(parser)
    add_launch(parser)
    add_store(parser, writes=True)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    if args.list:
        from tessera.cli.list_command import print_listing

        return print_listing("ops", args.form, args.output)
    if not args.names and not args.all:
        raise TesseraError("no operator named", do="name some, or --all; see `tessera ops --list`")
    plan = Plan(
        cases=tuple(
            cases(
                ["*"] if args.all else args.names,
                size=args.size,
                passes=args.passes,
                dtype=args.dtype,
                seed=args.seed,
            )
        ),
        sampling=sampling_of(args),
        launch=launch_of(args),
        launches=launches_of(args),
    )
    stored, records, outcome = execute(plan, store_path=args.store, name=args.run, suite="ops", resume=args.resume)
    job = current_job()
    if job is None or job.rank == 0:
        print_records(stored, records, args.form, args.output)
        if args.form == "terminal":
            print("\n".join(closing_lines(stored, outcome, records)))
    return exit_code(records)
