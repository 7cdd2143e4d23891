"""Explain how a network is computed on a split image: on tiles, with data moved, or whole on every rank.

The network runs once on ranks that are threads of this process; nothing is timed. Operators that compute on their own
tile and receive nothing are summarised, unless --all lists them.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from tessera.axes import Option, parse_int, parse_size
from tessera.cli.options import OUTPUT_OPTIONS
from tessera.errors import EXIT_OK, TesseraError

if TYPE_CHECKING:
    from tessera.report.tables import OutputFormat
    from tessera.spatial.tensor.explanation import Explanation

EPILOG = """\
examples:
  tessera halo explain resnet50 --image-size 224 --mesh 2x2
  tessera halo explain efficientnet_b0 --image-size 512 --mesh 1x4 --all
  tessera halo explain mypackage.nets:make_unet --image-size 256 --in-channels 1 --json

MODEL is a registered model (`tessera list models`) or module:callable.
"""
MAX_RANKS = 64

OPTIONS = (
    Option(name="model", positional="MODEL", help="network: a registered model or module:callable"),
    Option(
        name="mesh", default="2x2", metavar="RxC", help="parts along the dims of the image, for example 2, 2x2 or 2x1x2"
    ),
    Option(
        name="image_size", parse=parse_size, default=(224, 224), default_text="224", help="height and width in pixels"
    ),
    Option(name="batch_size", parse=parse_int, default=1, minimum=1, help="images per batch"),
    Option(name="in_channels", parse=parse_int, default=3, minimum=1, help="channels of the image"),
    Option(name="all", action="flag", help="list of all operators, including those that move nothing"),
    *OUTPUT_OPTIONS,
)


def run(args: argparse.Namespace) -> int:
    explanation = _explain(args)
    rows = explanation.to_rows()
    shown = rows if args.all else [row for row in rows if row["received_bytes"] or row["computed"] != "split"]
    _write(explanation, shown, args.output_format, args.output)
    return EXIT_OK


def _explain(args: argparse.Namespace) -> Explanation:
    """Run the network once on in-process ranks and return the explanation of rank 0."""
    import torch

    from tessera.models import build
    from tessera.spatial.parallel_model import parallelize, read_mesh
    from tessera.transport.in_process import InProcessTransport, run_ranks

    counts = read_mesh(args.mesh)
    ranks = 1
    for count in counts:
        ranks *= count
    if ranks > MAX_RANKS:
        raise TesseraError("too many ranks for one process", got=ranks, allowed=f"{MAX_RANKS} or fewer")
    image = torch.zeros(args.batch_size, args.in_channels, *args.image_size)
    model = build(args.model).eval()

    def run_rank(transport: InProcessTransport) -> Explanation:
        return parallelize(model, counts, transport=transport, broadcast=False).explain(image)

    return run_ranks(ranks, run_rank)[0]


def _write(
    explanation: Explanation, rows: list[dict[str, Any]], output_format: OutputFormat, output: str | None
) -> None:
    from tessera.report.blocks import Column
    from tessera.report.figures import format_bytes
    from tessera.report.tables import open_output, write_json, write_rows

    with open_output(output) as stream:
        if output_format == "json":
            write_json(explanation.to_dict(), stream)
            return
        columns = [
            Column("module"),
            Column("operator"),
            Column("shape"),
            Column("computed"),
            Column("calls", "number"),
            Column("received", "number"),
        ]
        cells = [
            [
                row["module"],
                row["operator"],
                row["shape"],
                row["computed"],
                row["calls"],
                row["received_bytes"] if output_format == "csv" else format_bytes(row["received_bytes"]),
            ]
            for row in rows
        ]
        write_rows(columns, cells, output_format, stream)
        if output_format == "terminal":
            stream.write(f"{explanation.summarise(format_bytes)}\n")
