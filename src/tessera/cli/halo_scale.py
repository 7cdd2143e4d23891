"""Predict the time and memory of a network whose images are split over workers, on one machine or several of them.

--workers N plans the split: replicas that divide the batch times tiles that divide every image. It prints all splits,
the fastest and the smallest one, and why. Without it, the tables show how a step scales with the number of ranks:
strong scaling splits the same image over more and more ranks, weak scaling gives every rank the same tile.

Predictions use shapes only, so they take seconds for any image. With --measure the step also runs on ranks of this
host, and the times are shown beside the predictions.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from tessera.axes import Option, group_options, parse_dims, parse_int
from tessera.cli.options import OUTPUT_OPTIONS, check_given_options, get_picture_path
from tessera.errors import EXIT_OK, TesseraError
from tessera.spatial.problem import DTYPES, fill_image_size

if TYPE_CHECKING:
    from tessera.report.tables import OutputFormat
    from tessera.spatial.scaling.prediction import SplitStep
    from tessera.spatial.scaling.table import ScalingResult

SLICE_METHODS = ("nearest", "square", "vertical", "horizontal")
OPTIMIZERS = ("none", "sgd", "momentum", "adam")
EPILOG = """\
examples:
  tessera halo scale --workers 8 --batch-size 8 --image-size 1024 --machine a100-pcie-80gb
  tessera halo scale --workers 4 --model unet --image-size 512 --inference --machine host
  tessera halo scale --workers 4 --mesh 2x1x2 --model nets:make_unet3d --in-channels 1 --image-size 96x96x96
  tessera halo scale --machine host --ranks 1,2 --image-size 1024
  tessera halo scale --machine cluster.toml --ranks 1..256 --image-size 16384 --model resnet50 -o scaling.html
  tessera halo scale --machine host --network 12.5e9,2e-6 --ranks 1..64 --measure 1,2,4 -o scaling.svg

A model is a registered name (`tessera list models`), module:callable (timm.models:resnet50) or file.py:callable.
Ranks are workers of the machine (cores of a host) and fill as many machines as necessary. The link between machines is
[links.network] of the machine's file, or --network.
"""

WIDE_COLUMNS = 130  # a terminal of fewer columns gets a table of fewer columns
PLAN, TABLES = "--workers", "the scaling tables"


def parse_ranks(text: str) -> tuple[int, ...]:
    """Parse numbers of ranks: a list, or a range `A..B` that doubles from A up to B.

    >>> parse_ranks("1..16"), parse_ranks("1,3,9"), parse_ranks("3..20")
    ((1, 2, 4, 8, 16), (1, 3, 9), (3, 6, 12, 20))
    """
    first, dots, last = text.partition("..")
    try:
        ranks = tuple(_iter_doubling(int(first), int(last))) if dots else tuple(int(part) for part in text.split(","))
    except ValueError:
        ranks = ()
    if not ranks or min(ranks) < 1 or len(set(ranks)) != len(ranks):
        raise TesseraError("invalid numbers of ranks", got=text, allowed="1..4096 or 1,2,4; each 1 or more")
    return tuple(sorted(ranks))


def parse_network(text: str) -> tuple[float, float]:
    """Parse `BANDWIDTH[,LATENCY]`: bytes per second, and seconds (default 0).

    >>> parse_network("12.5e9,2e-6"), parse_network("1e9")
    ((12500000000.0, 2e-06), (1000000000.0, 0.0))
    """
    bandwidth, _, latency = text.partition(",")
    try:
        network = float(bandwidth), float(latency or 0)
    except ValueError:
        network = 0.0, 0.0
    if not (network[0] > 0 and network[1] >= 0):
        raise TesseraError(
            "invalid bandwidth and latency", got=text, allowed="BYTES/S or BYTES/S,SECONDS, for example 12.5e9,2e-6"
        )
    return network


def parse_mesh(text: str) -> tuple[int, ...]:
    """Parse a mesh, such as 2x2."""
    from tessera.spatial.parallel_model import read_mesh

    return read_mesh(text)


def _iter_doubling(first: int, last: int) -> Iterator[int]:
    if not 1 <= first <= last:
        raise ValueError
    while first < last:
        yield first
        first *= 2
    yield last


OPTIONS = (
    *group_options(
        "machine",
        Option(
            name="machine",
            metavar="NAME|FILE",
            default="host",
            help="machine by name (`tessera list machines`) or TOML file",
        ),
        Option(
            name="network",
            parse=parse_network,
            metavar="BYTES/S[,SECONDS]",
            default_text="[links.network] of the machine",
            help="bandwidth and latency between machines",
        ),
    ),
    *group_options(
        "split plan",
        Option(
            name="workers",
            parse=parse_int,
            minimum=1,
            default_text="none: scaling tables",
            help="number of workers for which the split is planned",
        ),
        Option(
            name="mesh",
            parse=parse_mesh,
            metavar="RxC",
            applies_to=(PLAN,),
            default_text="all meshes",
            help="mesh of tiles of the planned split, for example 2, 2x2 or 2x1x2",
        ),
    ),
    *group_options(
        "scaling tables",
        Option(
            name="ranks",
            parse=parse_ranks,
            metavar="1..N|A,B",
            default=parse_ranks("1..64"),
            default_text="1..64",
            help="numbers of ranks: a range that doubles, or a list",
        ),
        Option(
            name="weak",
            parse=parse_int,
            default=512,
            minimum=1,
            help="length in pixels of each rank's tile for weak scaling, along every dim",
        ),
        Option(
            name="slice_method",
            choices=SLICE_METHODS,
            default="nearest",
            help="mesh of tiles (nearest is the mesh with the shortest tile boundaries)",
        ),
        applies_to=(TABLES,),
    ),
    *group_options(
        "step",
        Option(name="model", default="resnet50", help="network by name, module:callable or file.py:callable"),
        Option(name="image_size", parse=parse_dims, default=2048, help="size of the images in pixels"),
        Option(name="batch_size", parse=parse_int, default=1, minimum=1, help="images per batch"),
        Option(name="in_channels", parse=parse_int, default=3, minimum=1, help="channels of the images"),
        Option(name="dtype", choices=tuple(DTYPES), default="float32", help="format of weights and activations"),
        Option(name="inference", action="flag", help="forward pass only, instead of a training step"),
        Option(name="optimizer", choices=OPTIMIZERS, default="none", help="optimizer whose state counts as memory"),
    ),
    *group_options(
        "measurement",
        Option(
            name="measure",
            parse=parse_ranks,
            metavar="A,B",
            default_text="none",
            applies_to=(TABLES,),
            help="numbers of ranks for which the step is also measured on this host",
        ),
        Option(
            name="measure_size",
            parse=parse_int,
            default=256,
            minimum=1,
            applies_to=(TABLES,),
            help="length in pixels of the image for --measure, along every dim",
        ),
        Option(name="quick", action="flag", help="quick, less precise run: 0.5 s per measurement instead of 5 s"),
    ),
    *OUTPUT_OPTIONS,
)


def run(args: argparse.Namespace) -> int:
    check_given_options(args, [PLAN if args.workers else TABLES])
    return _print_plan(args) if args.workers else _print_scaling(args)


def _make_step(args: argparse.Namespace) -> SplitStep:
    from tessera.spatial.scaling.prediction import SplitStep

    if args.inference and args.optimizer != "none":
        raise TesseraError("--optimizer applies only to training", got="--inference")
    return SplitStep(
        model=args.model,
        batch=args.batch_size,
        channels=args.in_channels,
        dtype=args.dtype,
        training=not args.inference,
        optimizer=args.optimizer,
    )


def _print_plan(args: argparse.Namespace) -> int:
    """Print the splits of a step over --workers."""
    from tessera.report.blocks import Table
    from tessera.report.tables import open_output, write_blocks, write_json
    from tessera.spatial.scaling.plan_table import (
        build_plan_rows,
        describe_plan,
        dump_plan,
        get_columns,
        list_plan_lines,
    )
    from tessera.spatial.scaling.planner import plan_splits
    from tessera.spatial.scaling.study import load_target

    plan = plan_splits(
        _make_step(args),
        fill_image_size(args.image_size, args.mesh),
        args.workers,
        load_target(args.machine, args.network),
        mesh=args.mesh,
    )
    with open_output(args.output) as stream:
        if args.output_format == "json":
            write_json(dump_plan(plan), stream)
        elif args.output_format == "csv":
            _write_rows_as_csv(dump_plan(plan)["splits"], stream)
        else:
            narrow = stream.isatty() and shutil.get_terminal_size().columns < WIDE_COLUMNS
            stream.write(f"{describe_plan(plan)}\n")
            table = Table(get_columns(narrow), build_plan_rows(plan, narrow))
            write_blocks([table, list_plan_lines(plan)], args.output_format, stream)
    return EXIT_OK


def _print_scaling(args: argparse.Namespace) -> int:
    """Print how a step scales with --ranks."""
    from tessera.report.tables import open_output
    from tessera.spatial.scaling.study import ScalingStudy, load_target

    study = ScalingStudy(
        step=_make_step(args),
        machine=load_target(args.machine, args.network),
        ranks=args.ranks,
        image=fill_image_size(args.image_size, None),
        tile_size=args.weak,
        slice_method=args.slice_method,
    )
    scaling = study.predict()
    if args.measure:
        measured = study.measure(args.measure, args.measure_size, quick=args.quick, report=_print_progress)
        scaling = replace(scaling, measured=measured)
    if path := get_picture_path(args):
        _write_plot(scaling, path)
        _write_tables(scaling, "terminal", sys.stdout)
        print(f"plot: {args.output}")
        return EXIT_OK
    with open_output(args.output) as stream:
        _write_tables(scaling, args.output_format, stream)
    return EXIT_OK


def _print_progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _write_tables(scaling: ScalingResult, output_format: OutputFormat, stream: TextIO) -> None:
    from tessera.report.line_chart import draw_line_chart
    from tessera.report.tables import write_json, write_rows
    from tessera.spatial.scaling.prediction import compute_efficiencies
    from tessera.spatial.scaling.table import dump_scaling

    if output_format == "json":
        write_json(dump_scaling(scaling), stream)
        return
    if output_format == "csv":  # one table, with a column for the kind of scaling
        plain = dump_scaling(scaling)
        rows = [{"scaling": kind, **row} for kind in ("strong", "weak", "measured") for row in plain[kind]]
        _write_rows_as_csv(rows, stream)
        return
    for title, columns, cells in scaling.tables:
        write_rows(columns, cells, output_format, stream, title)
    if output_format == "terminal" and len(scaling.strong) > 2:
        first, last = scaling.strong[0], scaling.strong[-1]
        stream.write(f"efficiency of strong scaling, {first.ranks:,} to {last.ranks:,} ranks\n")
        chart = draw_line_chart(
            compute_efficiencies(scaling.strong), (), width=72, label=lambda share: f"{share:.0%}", height=7
        )
        stream.write("\n".join(chart) + "\n")


def _write_rows_as_csv(rows: Sequence[dict[str, Any]], stream: TextIO) -> None:
    """Write dicts as CSV; missing values are empty."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(stream, names, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: "x".join(map(str, v)) if isinstance(v, list) else v for k, v in row.items()})


def _write_plot(scaling: ScalingResult, path: Path) -> None:
    from tessera.report.page import write_page
    from tessera.spatial.scaling.page import build_scaling_page
    from tessera.spatial.scaling.plot import draw_scaling

    write_page(draw_scaling(scaling) if path.suffix == ".svg" else build_scaling_page(scaling), path)
