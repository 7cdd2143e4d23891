"""How a convolution lies on a grid of cores with a small memory each: does it fit, what moves, how long does it take?

It is planned on a described chip (layout, shards, blocks, memory, bytes, predicted time), then executed here under a
model of the chip that counts every byte and bounds every core's memory, and held against torch. --plan-only leaves
the execution out, --table takes the convolutions of a model, --network plans a whole one.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tessera.cli.conv_options import add_case_options, add_run_options, axes_of
from tessera.cli.execute import closing_lines, execute
from tessera.cli.options import launch_of, launches_of, sampling_of
from tessera.coregrid.cases import cases
from tessera.errors import OK, REGRESSION, TesseraError
from tessera.results.record import Case, exit_code
from tessera.suites.plan import Plan

if TYPE_CHECKING:
    from tessera.coregrid.problem import Problem

PICTURES = (".svg", ".html")
EPILOG = """\
examples:
  tessera conv --image-size 56 --in-channels 64 --out-channels 64 --batch-size 8 --plan-only
  tessera conv --machine grayskull-e150 --shard-layout HEIGHT --act-block-h-override 64 --image-size 112
  tessera conv --image-size 14 --in-channels 256 --out-channels 256 --picture plan.html --trace plan.json
  tessera conv --table resnet50 --batch-size 8 --plan-only
  tessera conv --sweep shard-layout=HEIGHT,BLOCK,WIDTH --image-size 28 --in-channels 128 --out-channels 128
  tessera conv --network resnet50 --batch-size 16 --machine wormhole-n150
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_case_options(parser)
    add_run_options(parser)


def run(args: argparse.Namespace) -> int:
    _check(args)
    if args.network:
        return _network(args)
    found = cases(table=[args.table] if args.table else [], layers=args.layers, **axes_of(args))
    if args.list:
        from tessera.cli.halo_tables import print_cases

        return print_cases(found, args.form, args.output)
    if (args.picture or args.trace) and len(found) > 1:
        raise TesseraError("a picture is of one convolution", got=f"{len(found)} cases", do="name one of them")
    if args.plan_only:
        return _plan_only(args, found)
    plan = Plan(cases=tuple(found), sampling=sampling_of(args), launch=launch_of(args), launches=launches_of(args))
    stored, records, outcome = execute(plan, store_path=args.store, name=args.run, suite="conv", resume=args.resume)
    from tessera.cli.conv_tables import print_conv, print_problem

    if args.tells and len(found) == 1:
        print_problem(_problem(found[0]), args.candidates, sys.stdout)
    print_conv(stored, records, args.form, args.output)
    if args.picture or args.trace:
        _draw(args, _problem(found[0]))
    if args.tells:
        print("\n".join(closing_lines(stored, outcome, records)))
    if any(record.metrics["wrong"].value for record in records if "wrong" in record.metrics):
        return REGRESSION
    return exit_code(records)


def _check(args: argparse.Namespace) -> None:
    """Refuse what could not be done in the end, before anything is planned or measured."""
    if args.picture and Path(args.picture).suffix not in PICTURES:
        raise TesseraError("--picture", got=args.picture, allowed="a file that ends in .svg or .html")
    for whole, others in (("network", ("table", "layers", "list", "picture", "trace")), ("list", ("picture", "trace"))):
        if getattr(args, whole) and (given := [f"--{name}" for name in others if getattr(args, name)]):
            raise TesseraError(f"--{whole} does not go with these options", got=", ".join(given), do="leave them out")


def _plan_only(args: argparse.Namespace, found: list[Case]) -> int:
    from tessera.cli.conv_tables import print_plans, print_problem
    from tessera.report.destination import destination

    problems = [_problem(case) for case in found]
    with destination(args.output) as stream:
        if len(problems) == 1 and args.form == "terminal":
            print_problem(problems[0], args.candidates, stream)
        else:
            print_plans(found, problems, args.form, stream)
    if args.picture or args.trace:
        _draw(args, problems[0])
    return OK


def _network(args: argparse.Namespace) -> int:
    from tessera.cli.conv_network import print_network
    from tessera.coregrid.machines import machine_of
    from tessera.coregrid.networks.layers import network
    from tessera.coregrid.networks.plan import plan_network
    from tessera.report.destination import destination

    given = axes_of(args)
    if unknown := sorted(set(given) - {"machine", "batch_size", "image_size"}):
        raise TesseraError("a network is planned with its own shapes and settings", got=", ".join(unknown))
    machine, size = machine_of(_one(given, "machine", "wormhole-n150")), _one(given, "image_size", None)
    if isinstance(size, list):
        raise TesseraError("the images of a network are square", got="x".join(map(str, size)))
    planned = plan_network(network(args.network, _one(given, "batch_size", 16), size), machine)
    with destination(args.output) as stream:
        print_network(planned, args.form, stream)
    return OK


def _one(given: dict[str, list[Any]], axis: str, usual: Any) -> Any:
    values = given.get(axis, [usual])
    if len(values) > 1:
        raise TesseraError("one network at a time", got=f"{axis} {values}")
    return values[0]


def _problem(case: Case) -> Problem:
    from tessera.coregrid.problem import Problem

    return Problem.of(case.params)


def _draw(args: argparse.Namespace, problem: Problem) -> None:
    """Write the picture and the trace that are asked for; it is said on stderr, beside results that others may read."""
    from tessera.coregrid.cases import SEARCH
    from tessera.coregrid.cost.timeline import timelines
    from tessera.coregrid.pictures.halos import describe, halos_svg
    from tessera.coregrid.pictures.lanes import trace
    from tessera.coregrid.pictures.memory_map import memory_svg
    from tessera.coregrid.pictures.page import plan_page
    from tessera.report.page import write_page

    plan = problem.plan()
    if args.trace:
        write_page(trace(timelines(plan), describe(plan)), Path(args.trace))
        print(f"trace: {args.trace}", file=sys.stderr)
    if not args.picture:
        return
    path = Path(args.picture)
    if path.suffix == ".html":
        write_page(plan_page(plan, problem.search() if problem.choice == SEARCH else None), path)
    else:
        write_page(halos_svg(plan) if plan.haloing else memory_svg(plan), path)
    print(f"picture: {args.picture}", file=sys.stderr)
