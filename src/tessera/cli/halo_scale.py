"""Predict the scaling of a training step whose image is split over ranks, on one machine or several of them.

Strong scaling splits the same image over more and more ranks; weak scaling gives every rank the same tile. The
prediction uses shapes only, so it takes seconds for any image and any number of ranks. With --measure the step also
runs on ranks of this host, and the times are shown beside the predictions.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from tessera.axes import Option, group_options, parse_int
from tessera.cli.options import OUTPUT_OPTIONS
from tessera.errors import EXIT_OK, TesseraError
from tessera.spatial.problem import DTYPES

if TYPE_CHECKING:
    from tessera.report.tables import OutputFormat
    from tessera.spatial.scaling.table import Scaling

SLICE_METHODS = ("nearest", "square", "vertical", "horizontal")
EPILOG = """\
examples:
  tessera halo scale --machine host --ranks 1,2 --image-size 1024
  tessera halo scale --machine cluster.toml --ranks 1..4096 --image-size 16384 --model resnet50 -o scaling.html
  tessera halo scale --machine host --network 12.5e9,2e-6 --ranks 1..64 --measure 1,2,4 -o scaling.svg

Ranks are workers of the machine (cores of a host) and fill as many machines as necessary. The link between machines is
[links.network] of the machine's file, or --network.
"""

DEFAULT_TILE_PIXELS = 512
DEFAULT_MEASURED_PIXELS = 256
GROUP_MACHINE, GROUP_STEP, GROUP_MEASUREMENT = "machine", "step", "measurement"


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


def _iter_doubling(first: int, last: int) -> Iterator[int]:
    if not 1 <= first <= last:
        raise ValueError
    while first < last:
        yield first
        first *= 2
    yield last


OPTIONS = (
    *group_options(
        GROUP_MACHINE,
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
        Option(
            name="ranks",
            parse=parse_ranks,
            metavar="1..N|A,B",
            default=parse_ranks("1..64"),
            default_text="1..64",
            help="numbers of ranks: a range that doubles, or a list",
        ),
    ),
    *group_options(
        GROUP_STEP,
        Option(name="model", default="resnet50", help="network by name, or module:callable"),
        Option(
            name="image_size",
            parse=parse_int,
            default=2048,
            minimum=1,
            help="height and width in pixels of the image for strong scaling",
        ),
        Option(
            name="weak",
            parse=parse_int,
            default=DEFAULT_TILE_PIXELS,
            minimum=1,
            help="height and width in pixels of each rank's tile for weak scaling",
        ),
        Option(name="batch_size", parse=parse_int, default=1, minimum=1, help="images per batch"),
        Option(name="dtype", choices=tuple(DTYPES), default="float32", help="format of weights and activations"),
        Option(
            name="slice_method",
            choices=SLICE_METHODS,
            default="nearest",
            help="mesh of tiles (nearest is the mesh closest to a square)",
        ),
    ),
    *group_options(
        GROUP_MEASUREMENT,
        Option(
            name="measure",
            parse=parse_ranks,
            metavar="A,B",
            default_text="none",
            help="numbers of ranks for which the step is also measured on this host",
        ),
        Option(
            name="measure_size",
            parse=parse_int,
            default=DEFAULT_MEASURED_PIXELS,
            minimum=1,
            help="height and width in pixels of the image for --measure",
        ),
        Option(name="quick", action="flag", help="quick, less precise run: 0.5 s per measurement instead of 5 s"),
    ),
    *OUTPUT_OPTIONS,
)


def run(args: argparse.Namespace) -> int:
    from tessera.report.tables import open_output
    from tessera.spatial.scaling.study import ScalingStudy

    study = ScalingStudy(
        model=args.model,
        machine=args.machine,
        ranks=args.ranks,
        image_size=args.image_size,
        tile_size=args.weak,
        batch_size=args.batch_size,
        dtype=args.dtype,
        slice_method=args.slice_method,
        network=args.network,
    )
    scaling = study.predict()
    if args.measure:
        measured = study.measure(args.measure, args.measure_size, quick=args.quick, report=_print_progress)
        scaling = replace(scaling, measured=measured)
    suffix = Path(args.output).suffix if args.output else ""
    if args.output_format == "terminal" and suffix in (".html", ".svg"):
        _write_plot(scaling, Path(args.output))
        _write_tables(scaling, "terminal", sys.stdout)
        print(f"plot: {args.output}")
        return EXIT_OK
    with open_output(args.output) as stream:
        _write_tables(scaling, args.output_format, stream)
    return EXIT_OK


def _print_progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _write_tables(scaling: Scaling, output_format: OutputFormat, stream: TextIO) -> None:
    from tessera.report.line_chart import draw_line_chart
    from tessera.report.tables import write_json, write_rows
    from tessera.spatial.scaling.prediction import compute_efficiencies
    from tessera.spatial.scaling.table import dump_scaling

    if output_format == "json":
        write_json(dump_scaling(scaling), stream)
        return
    if output_format == "csv":
        _write_csv(dump_scaling(scaling), stream)
        return
    for title, columns, rows in scaling.tables:
        if output_format == "terminal":  # print the title separately: a table narrower than its title would wrap it
            stream.write(f"{title}\n")
        texts = [[cell.text for cell in row] for row in rows]
        write_rows(columns, texts, output_format, stream, title=title if output_format == "markdown" else "")
    if output_format == "terminal" and len(scaling.strong) > 2:
        first, last = scaling.strong[0], scaling.strong[-1]
        stream.write(f"efficiency of strong scaling, {first.ranks:,} to {last.ranks:,} ranks\n")
        chart = draw_line_chart(
            compute_efficiencies(scaling.strong), (), width=72, label=lambda share: f"{share:.0%}", height=7
        )
        stream.write("\n".join(chart) + "\n")


def _write_csv(values: dict[str, Any], stream: TextIO) -> None:
    """Write strong and weak scaling as one CSV table with a column for the kind; missing values are empty."""
    rows = [{"scaling": kind, **row} for kind in ("strong", "weak", "measured") for row in values[kind]]
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(stream, names, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: "x".join(map(str, v)) if isinstance(v, list) else v for k, v in row.items()})


def _write_plot(scaling: Scaling, path: Path) -> None:
    from tessera.report.page import write_page
    from tessera.spatial.scaling.page import build_scaling_page
    from tessera.spatial.scaling.plot import draw_scaling

    write_page(draw_scaling(scaling) if path.suffix == ".svg" else build_scaling_page(scaling), path)
