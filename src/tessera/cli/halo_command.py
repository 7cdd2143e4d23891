"""Cost of the halos of an image that is split over ranks, and exactness of the result.

Each rank holds a tile of the image. A convolution reads pixels of neighbouring tiles: the halo. `exchange` times the
exchange of halos, `compute` the convolution with it, `validate` compares every pixel with the unsplit convolution,
`plan` lists and draws the exchange, `explain` shows how a whole network is split, `scale` predicts larger machines.
One rank is started per tile; inside a torchrun or mpiexec job the command joins that job instead.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from tessera.affinity import get_affinity
from tessera.axes import Option, parse_int
from tessera.cli.execute import execute_and_print, is_root, print_cases
from tessera.cli.options import (
    LIST_CASES_OPTION,
    RESULT_OPTIONS,
    SAMPLING_OPTIONS,
    SWEEP_OPTION,
    WORKER_OPTIONS,
    adapt_options,
    add_options,
    get_launches,
    join_description,
    make_fixed_sampling,
    make_launch,
    make_sampling,
    shorten_usage,
)
from tessera.errors import EXIT_REGRESSION, TesseraError
from tessera.files import replace_text
from tessera.launch import Workers
from tessera.launch.job import get_current_job
from tessera.measure.samples import Sampling
from tessera.report.tables import write_rows
from tessera.results import strict_json
from tessera.results.record import Case, compute_exit_code
from tessera.spatial.bench.memory_demand import check_memory
from tessera.spatial.bench.time_limit import compute_time_limit
from tessera.spatial.cases import AXES, BENCHMARKS, CHANNELS_LAST, MIN_ROUNDS, cases
from tessera.spatial.cases import launch as launch_case
from tessera.spatial.tables import write_halo
from tessera.suites.plan import RunPlan
from tessera.transport.registry import list_transports

# Subcommands that start no ranks: modules with OPTIONS and run(args).
SUBCOMMANDS_WITHOUT_RANKS = {
    "plan": ("tessera.cli.halo_plan", "table and picture of an exchange; runs nothing"),
    "explain": ("tessera.cli.halo_explain", "operators of a network that are split, moved or computed whole"),
    "scale": ("tessera.cli.halo_scale", "predicted strong and weak scaling on a machine"),
}
DEFAULT_WARMUP, DEFAULT_ITERATIONS = 10, 100
TIMED_SAMPLING_OPTIONS = adapt_options(
    SAMPLING_OPTIONS,
    target={"default_text": "none"},
    budget={"default_text": "none"},
    warmup={"default_text": str(DEFAULT_WARMUP)},
    iterations={"default_text": str(DEFAULT_ITERATIONS)},
)
MAX_RANKS_PER_CORE = 8
OVERSUBSCRIBE = Option(
    name="oversubscribe",
    action="flag",
    group="workers",
    help=f"permission to start more than {MAX_RANKS_PER_CORE} ranks per core",
)
TRACE = Option(
    name="trace",
    metavar="FILE",
    group="output",
    help="time lines of all ranks, of a few further steps, as a file for Perfetto or chrome://tracing",
)
TRACED_BENCHMARKS = ("compute", "network")
VALIDATION_OPTIONS = (
    Option(name="quick", action="flag", group="rounds", help=f"{MIN_ROUNDS} rounds, regardless of --iterations"),
    Option(
        name="warmup", parse=parse_int, minimum=0, group="rounds", help="no effect, because validation is not timed"
    ),
)

OUTPUT_SUFFIXES = (".svg", ".html")
EPILOG = """\
examples:
  tessera halo exchange --image-size 1024 --in-channels 16 --num-spatial-parts 2 --slice-method vertical
  tessera halo exchange --in-channels 16 --sweep image-size=256,512,1024 --sweep transport=gloo,shared
  tessera halo compute --image-size 512 --in-channels 16 --out-channels 16 --num-spatial-parts 2 --slice-method 1x2
  tessera halo validate --image-size 37x61 --kernel 5 --stride 3 --dilation 2 --num-spatial-parts 6 --slice-method 2x3
  tessera halo plan --image-size 64 --num-spatial-parts 4 -o plan.svg
  torchrun --nproc-per-node 4 -m tessera halo validate --image-size 256      joins the torchrun job

Times are of 10 warm-ups and 100 iterations, unless --target, --budget or --quick choose adaptive sampling.
An iteration starts with a barrier; its time is the time of the slowest rank.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_options(parser, [Option(name="list", action="flag", help="list of the benchmarks")])
    subparsers = parser.add_subparsers(dest="benchmark", metavar="BENCHMARK", title="benchmarks")
    layout: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}
    for name, text in BENCHMARKS.items():
        description = join_description(f"{text[0].upper()}{text[1:]}.", EPILOG)
        subparser = subparsers.add_parser(name, help=text, description=description, **layout)
        sampling = VALIDATION_OPTIONS if name == "validate" else TIMED_SAMPLING_OPTIONS
        add_options(
            subparser,
            [
                *AXES.get_options(name),
                CHANNELS_LAST,
                SWEEP_OPTION,
                LIST_CASES_OPTION,
                *sampling,
                *WORKER_OPTIONS,
                OVERSUBSCRIBE,
                *((TRACE,) if name in TRACED_BENCHMARKS else ()),
                *RESULT_OPTIONS,
            ],
        )
        subparser.usage = shorten_usage(subparser)
        subparser.set_defaults(handler=_run_benchmark)
    for name, (path, text) in SUBCOMMANDS_WITHOUT_RANKS.items():
        module = import_module(path)
        description = join_description(module.__doc__ or "", module.EPILOG)
        subparser = subparsers.add_parser(name, help=text, description=description, **layout)
        add_options(subparser, module.OPTIONS)
        subparser.usage = shorten_usage(subparser)
        subparser.set_defaults(handler=module.run)


def run(args: argparse.Namespace) -> int:
    if args.benchmark is None:
        if not args.list:
            raise TesseraError(
                "no halo benchmark is given",
                allowed=[*BENCHMARKS, *SUBCOMMANDS_WITHOUT_RANKS],
                do="see `tessera halo --help`",
            )
        rows = [*BENCHMARKS.items(), *((name, text) for name, (_, text) in SUBCOMMANDS_WITHOUT_RANKS.items())]
        write_rows(["name", "what"], rows, "terminal", sys.stdout)
        return 0
    return int(args.handler(args))


def _run_benchmark(args: argparse.Namespace) -> int:
    given = {axis.dest: getattr(args, axis.dest) for axis in AXES.get_options(args.benchmark)}
    values = AXES.read_values(given, args.sweep)
    notes = _drop_ignored_options(args, values)
    selected = cases([args.benchmark], **values)
    if is_root():
        for note in notes:
            print(f"note: {note}", file=sys.stderr)
    if args.list:
        return print_cases(selected, args)
    trace = args.trace if args.benchmark in TRACED_BENCHMARKS else None
    if trace is not None and not Path(trace).parent.is_dir():
        raise TesseraError("the directory of --trace does not exist", got=trace, do="create it, or choose another file")
    plan = _make_plan(args, selected)
    records = execute_and_print(plan, args, suite=f"halo {args.benchmark}", write=write_halo)
    if trace is not None:
        _write_trace(trace, plan)
    if any(record.metrics["failed_ranks"].value for record in records if "failed_ranks" in record.metrics):
        return EXIT_REGRESSION
    return compute_exit_code(records)


def _drop_ignored_options(args: argparse.Namespace, values: dict[str, list[Any]]) -> list[str]:
    """Remove options without effect on the chosen benchmark from `values`; return a note for each removed option."""
    notes = AXES.drop_ignored(values, args.benchmark)
    if any(values.get("fp16_allreduce", ())) and not any(values.get("backward", ())):
        notes.append("--fp16-allreduce has no effect without --backward: there are no gradients to sum")
        del values["fp16_allreduce"]
    if args.benchmark == "validate":
        if args.quick:
            values["rounds"] = [MIN_ROUNDS]
        if "warmup" in args.given:
            notes.append("--warmup has no effect on validate: nothing is timed")
    return notes


def _make_plan(args: argparse.Namespace, selected: list[Case]) -> RunPlan:
    job = get_current_job()
    parts = sorted({int(case.params["num_spatial_parts"]) for case in selected})
    if job is not None and parts != [job.size]:
        raise TesseraError(
            f"this {job.kind} job has {job.size} ranks",
            got=f"{', '.join(map(str, parts))} parts",
            do=f"use --num-spatial-parts {job.size}, or start Tessera outside of the job",
        )
    if job is None:
        _check_transports({str(case.params["transport"]) for case in selected})
        _check_cores(parts[-1], args.oversubscribe)
    check_memory(selected, 1.0 if job is None else job.local_size / job.size)
    launch, sampling, launches = make_launch(args), Sampling(), 1
    if args.benchmark != "validate":
        launches = get_launches(args)
        sampling = (
            make_sampling(args)
            if args.quick
            else make_fixed_sampling(args, warmup=DEFAULT_WARMUP, iterations=DEFAULT_ITERATIONS)
        )
    if launch.time_limit is None:
        limits = [compute_time_limit(case, sampling) for case in selected]
        launch = replace(launch, time_limit=max((limit for limit in limits if limit is not None), default=None))
    return RunPlan(cases=tuple(selected), sampling=sampling, launch=launch, launches=launches)


def _write_trace(path: str, plan: RunPlan) -> None:
    """Run a few steps of every case once more, and write the time lines of the ranks."""
    from tessera.spatial.bench.timeline import build_trace

    timelines = []
    for case in plan.cases:
        with Workers(launch_case(case, plan.launch)) as workers:
            timelines.append((case.key, workers.run("tessera.spatial.bench.timeline:record_timeline", case)))
    if is_root():
        replace_text(Path(path), strict_json.dumps(build_trace(timelines)))
        print(f"trace: {path}", file=sys.stderr)


def _check_cores(ranks: int, oversubscribe: bool) -> None:
    """Refuse to start so many ranks that the machine would hardly respond."""
    limit = MAX_RANKS_PER_CORE * len(get_affinity())
    if ranks > limit and not oversubscribe:
        raise TesseraError(
            "too many ranks for the cores of this machine",
            got=f"{ranks} ranks",
            allowed=f"up to {limit}, {MAX_RANKS_PER_CORE} per core",
            do="use fewer --num-spatial-parts, or --oversubscribe",
        )


def _check_transports(names: set[str]) -> None:
    """Raise an error for a transport whose ranks cannot be started here."""
    for transport in list_transports():
        if transport.name in names and not transport.usable:
            raise TesseraError(
                f"transport {transport.name} cannot be used here: {transport.detail}",
                do="see `tessera list transports`",
            )
