"""Explain how a network is computed on a split image: on tiles, with data moved, or whole on every rank.

The network runs on shapes alone, so that images of any size are possible. A network that needs values runs on ranks
that are threads of this process. Operators that compute on their own tile and receive nothing are summarised, unless
--all lists them. -o page.html or -o picture.svg draws all modules.
"""

from __future__ import annotations

import argparse
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tessera.axes import Option, parse_dims, parse_int
from tessera.cli.options import OUTPUT_OPTIONS, get_picture_path
from tessera.errors import EXIT_OK
from tessera.spatial.problem import fill_image_size

if TYPE_CHECKING:
    from tessera.spatial.tensor.explanation import Explanation

EPILOG = """\
examples:
  tessera halo explain resnet50 --image-size 224 --mesh 2x2
  tessera halo explain efficientnet_b0 --image-size 512 --mesh 1x4 --all
  tessera halo explain resnet18 --image-size 128 -o page.html
  tessera halo explain mypackage.nets:make_unet --image-size 256 --in-channels 1 --json
  tessera halo explain nets.py:make_unet3d --image-size 96x96x96 --mesh 2x1x2 --in-channels 1

MODEL is a registered model (`tessera list models`), module:callable (timm.models:resnet50) or file.py:callable.
"""

OPTIONS = (
    Option(name="model", positional="MODEL", help="network: a registered model, module:callable or file.py:callable"),
    Option(
        name="mesh", default="2x2", metavar="RxC", help="parts along the dims of the image, for example 2, 2x2 or 2x1x2"
    ),
    Option(
        name="image_size",
        parse=parse_dims,
        metavar="N|HxW|DxHxW",
        default=224,
        help="size of the images in pixels",
    ),
    Option(name="batch_size", parse=parse_int, default=1, minimum=1, help="images per batch"),
    Option(name="in_channels", parse=parse_int, default=3, minimum=1, help="channels of the image"),
    Option(name="all", action="flag", help="list of all operators, including those that move nothing"),
    *OUTPUT_OPTIONS,
)


def run(args: argparse.Namespace) -> int:
    from tessera.spatial.explain import explain_network
    from tessera.spatial.parallel_model import read_mesh

    mesh = read_mesh(args.mesh)
    image = fill_image_size(args.image_size, mesh)
    explanation = explain_network(args.model, image, mesh, batch=args.batch_size, channels=args.in_channels)
    if path := get_picture_path(args):
        _write_picture(explanation, args, (args.in_channels, *image), path)
        return EXIT_OK
    rows = explanation.to_rows()
    shown = rows if args.all else [row for row in rows if row["received_bytes"] or row["computed"] != "split"]
    _print_rows(explanation, shown, args)
    return EXIT_OK


def _write_picture(explanation: Explanation, args: argparse.Namespace, shape: tuple[int, ...], path: Path) -> None:
    from tessera.geometry.box import format_sizes
    from tessera.report.figures import format_bytes
    from tessera.report.page import write_page
    from tessera.spatial.picture.explanation import build_explanation_page, draw_explanation

    title = f"{args.model} on {args.mesh} ranks, {format_sizes(shape)} image"
    rows, summary = explanation.to_rows(), explanation.summarise(format_bytes)
    if path.suffix == ".html":
        write_page(build_explanation_page(rows, title=title, summary=summary), path)
    else:
        write_page(draw_explanation(rows, label=title), path)
    print(f"{summary}\npicture: {path}")


def _print_rows(explanation: Explanation, rows: list[dict[str, Any]], args: argparse.Namespace) -> None:
    from tessera.report.blocks import Column, Columns, tabulate
    from tessera.report.figures import format_bytes
    from tessera.report.tables import print_result

    columns: Columns[dict[str, Any]] = {
        "module": itemgetter("module"),
        "operator": itemgetter("operator"),
        "shape": itemgetter("shape"),
        "computed": itemgetter("computed"),
        Column("calls", "number"): itemgetter("calls"),
    }
    received = Column("received", "number")
    table = tabulate({**columns, received: lambda row: format_bytes(row["received_bytes"])}, rows)
    print_result(
        args.output_format,
        args.output,
        data=explanation.to_dict(),
        rows=tabulate({**columns, received: itemgetter("received_bytes")}, rows),
        blocks=[table, [explanation.summarise(format_bytes)]] if args.output_format == "terminal" else [table],
    )
