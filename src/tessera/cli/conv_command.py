"""Placement of a convolution on a grid of cores with a small memory each: fit, bytes moved, time.

The convolution is planned on a described chip (layout, shards, blocks, memory, bytes, predicted time), then executed
here under a model of the chip that counts every byte and limits every core's memory, and compared with torch.
--plan-only omits the execution, --table takes the convolutions of a model, --network plans a whole network.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tessera.axes import Option, group_options, parse_int
from tessera.cli.execute import execute_plan, make_plan, print_cases, print_summary
from tessera.cli.options import (
    LIST_CASES_OPTION,
    PICTURE_SUFFIXES,
    RESULT_OPTIONS,
    SAMPLING_OPTIONS,
    SWEEP_OPTION,
    WORKER_OPTIONS,
)
from tessera.coregrid.cases import AXES, CONV2D_BENCHMARK, NETWORK_BENCHMARK, cases
from tessera.errors import EXIT_OK, EXIT_REGRESSION, TesseraError
from tessera.report.record_tables import print_records
from tessera.results.record import Case, compute_exit_code

if TYPE_CHECKING:
    from tessera.coregrid.networks.plan import NetworkSearch
    from tessera.coregrid.problem import ConvProblem

GROUP_TABLES, GROUP_PICTURES = "tables and networks", "plan and pictures"
OPTIONS = (
    *group_options(
        GROUP_TABLES,
        Option(name="table", metavar="MODEL", help="model whose convolutions are the cases, e.g. resnet50"),
        Option(name="layers", several=True, metavar="A,B", help="layers of --table", default_text="all"),
    ),
    *AXES,
    SWEEP_OPTION,
    LIST_CASES_OPTION,
    *group_options(
        GROUP_PICTURES,
        Option(name="plan_only", action="flag", help="plan and prediction, without execution"),
        Option(name="candidates", parse=parse_int, default=5, minimum=0, help="candidates of the search to show"),
        Option(
            name="picture",
            metavar="FILE",
            help="picture of the plan: .svg for shards and halos, .html for a page with all pictures",
        ),
        Option(
            name="emit",
            choices=("ttnn", "json"),
            help="plan as a ttnn program to paste, or as JSON, instead of a table; without execution",
        ),
        Option(
            name="import",
            metavar="FILE",
            help="measured times of a chip (device profiler or tt-perf-report, .csv) beside the predicted times",
        ),
        Option(name="trace", metavar="FILE", help="predicted timeline as a file for Perfetto or chrome://tracing"),
    ),
    *SAMPLING_OPTIONS,
    *WORKER_OPTIONS,
    *RESULT_OPTIONS,
)
EPILOG = """\
examples:
  tessera conv --image-size 56 --in-channels 64 --out-channels 64 --batch-size 8 --plan-only
  tessera conv --machine grayskull-e150 --shard-layout HEIGHT --act-block-h-override 64 --image-size 112
  tessera conv --image-size 14 --in-channels 256 --out-channels 256 --picture plan.html --trace plan.json
  tessera conv --table resnet50 --batch-size 8 --plan-only
  tessera conv --sweep shard-layout=HEIGHT,BLOCK,WIDTH --image-size 28 --in-channels 128 --out-channels 128
  tessera conv --network resnet50 --batch-size 16 --machine wormhole-n150
"""


def run(args: argparse.Namespace) -> int:
    _check_options(args)
    if vars(args)["import"] and not args.network:
        return _print_profile(args)
    values = AXES.read_values(vars(args), args.sweep)
    tables = [args.table] if args.table else []
    selected = cases(
        [NETWORK_BENCHMARK if args.network else CONV2D_BENCHMARK], table=tables, layers=args.layers, **values
    )
    if args.network:
        return _print_network_plan(args, selected)
    if args.list:
        return print_cases(selected, args)
    if (args.picture or args.trace) and len(selected) > 1:
        raise TesseraError(
            "--picture and --trace apply only to one convolution", got=f"{len(selected)} cases", do="select one case"
        )
    if args.emit:
        return _emit_plan(args, selected)
    if args.plan_only:
        return _print_plans_only(args, selected)
    stored, records, outcome = execute_plan(make_plan(args, selected), args, suite="conv")
    from tessera.coregrid.tables import print_conv_plan, write_conv_records

    if args.show_summary and len(selected) == 1:
        print_conv_plan(_make_problem(selected[0]), args.candidates, sys.stdout)
    print_records(stored, records, args.output_format, args.output, write_conv_records)
    if args.picture or args.trace:
        _write_pictures(args, _make_problem(selected[0]))
    print_summary(args, stored, records, outcome)
    if any(record.metrics["wrong"].value for record in records if "wrong" in record.metrics):
        return EXIT_REGRESSION
    return compute_exit_code(records)


def _check_options(args: argparse.Namespace) -> None:
    """Raise an error for contradicting options, before anything is planned or measured."""
    if args.picture and Path(args.picture).suffix not in PICTURE_SUFFIXES:
        raise TesseraError(
            "--picture has an unknown file type", got=args.picture, allowed="a file that ends in .svg or .html"
        )
    for mode, others in (("network", ("table", "layers", "list", "trace")), ("list", ("picture", "trace", "emit"))):
        if getattr(args, mode) and (conflicts := [f"--{name}" for name in others if getattr(args, name)]):
            raise TesseraError(
                f"--{mode} cannot be combined with these options", got=", ".join(conflicts), do="omit them"
            )


def _print_plans_only(args: argparse.Namespace, selected: list[Case]) -> int:
    from tessera.coregrid.tables import print_conv_plan, print_plans
    from tessera.report.tables import open_output

    problems = [_make_problem(case) for case in selected]
    with open_output(args.output) as stream:
        if len(problems) == 1 and args.output_format == "terminal":
            print_conv_plan(problems[0], args.candidates, stream)
        else:
            print_plans(selected, problems, args.output_format, stream)
    if args.picture or args.trace:
        _write_pictures(args, problems[0])
    return EXIT_OK


def _print_network_plan(args: argparse.Namespace, selected: list[Case]) -> int:
    from tessera.coregrid.emit import emit_network
    from tessera.coregrid.network_tables import print_network
    from tessera.coregrid.networks.plan import plan_network_case
    from tessera.coregrid.profile_import import compare_network, print_comparison, read_profile
    from tessera.report.tables import open_output

    if len(selected) > 1:
        raise TesseraError("--network plans only one case", got=f"{len(selected)} cases", do="omit --sweep")
    search = plan_network_case(selected[0].params)
    profile = vars(args)["import"]
    if args.picture:
        _write_network_picture(args, search)
    with open_output(args.output) as stream:
        if profile:
            operations = read_profile(Path(profile))
            print_comparison(operations, compare_network(operations, search.best), args.output_format, stream)
        elif args.emit == "ttnn":
            stream.write(emit_network(search.best))
        else:
            print_network(search, "json" if args.emit else args.output_format, stream)
    return EXIT_OK


def _write_network_picture(args: argparse.Namespace, search: NetworkSearch) -> None:
    """Write the strip of layers (.svg), or a page with the strip and the memory over the layers (.html)."""
    from tessera.coregrid.pictures.network_strip import draw_network
    from tessera.coregrid.section import build_network_page
    from tessera.report.page import write_page

    path = Path(args.picture)
    write_page(build_network_page(search.best) if path.suffix == ".html" else draw_network(search.best), path)
    print(f"picture: {args.picture}", file=sys.stderr)


def _print_profile(args: argparse.Namespace) -> int:
    """Compare the convolutions of a profile with their predictions."""
    from tessera.coregrid.device.device import find_machine
    from tessera.coregrid.profile_import import compare_convolutions, print_comparison, read_profile
    from tessera.report.tables import open_output

    operations = read_profile(Path(vars(args)["import"]))
    machine = find_machine((args.machine or [AXES["machine"].default])[0])
    with open_output(args.output) as stream:
        print_comparison(operations, compare_convolutions(operations, machine), args.output_format, stream)
    return EXIT_OK


def _emit_plan(args: argparse.Namespace, selected: list[Case]) -> int:
    """Write the plan of one convolution as a ttnn program or as JSON."""
    from tessera.coregrid.emit import emit_conv2d
    from tessera.coregrid.planning.plan import explain_fit
    from tessera.coregrid.tables import build_plan_json
    from tessera.report.tables import open_output, write_json

    if len(selected) > 1:
        raise TesseraError("--emit applies only to one convolution", got=f"{len(selected)} cases", do="select one case")
    plan = _make_problem(selected[0]).plan()
    if not plan.fits:
        raise TesseraError("the plan does not fit and cannot be emitted", got=explain_fit(plan))
    with open_output(args.output) as stream:
        if args.emit == "ttnn":
            stream.write(emit_conv2d(plan))
        else:
            write_json(build_plan_json(plan), stream)
    return EXIT_OK


def _make_problem(case: Case) -> ConvProblem:
    from tessera.coregrid.problem import ConvProblem

    return ConvProblem.of(case.params)


def _write_pictures(args: argparse.Namespace, problem: ConvProblem) -> None:
    """Write the picture and the trace to files; print the file names to stderr, because stdout may hold JSON or CSV."""
    from tessera.coregrid.convolution import SEARCH_LAYOUT
    from tessera.coregrid.cost.timeline import build_timelines
    from tessera.coregrid.pictures.core_charts import draw_memory, export_trace
    from tessera.coregrid.pictures.halos import draw_halos
    from tessera.coregrid.planning.plan import describe_plan
    from tessera.coregrid.section import build_plan_page
    from tessera.report.page import write_page

    plan = problem.plan()
    if args.trace:
        write_page(export_trace(build_timelines(plan), describe_plan(plan)), Path(args.trace))
        print(f"trace: {args.trace}", file=sys.stderr)
    if not args.picture:
        return
    path = Path(args.picture)
    if path.suffix == ".html":
        write_page(build_plan_page(plan, problem.search() if problem.choice == SEARCH_LAYOUT else None), path)
    else:
        write_page(draw_halos(plan) if plan.halo_runs else draw_memory(plan), path)
    print(f"picture: {args.picture}", file=sys.stderr)
