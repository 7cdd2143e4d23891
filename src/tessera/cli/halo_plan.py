"""Draw and list the halo exchange of a convolution whose image is cut over workers. Runs nothing.

The table says from whom to whom how much goes; -o plan.svg draws it, and -o plan.html lets you point at a worker to
see its part enlarged.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from tessera.cli.options import add_output, checked, size
from tessera.errors import OK, TesseraError
from tessera.geometry.halo import MODES
from tessera.geometry.partition import SLICE_METHODS
from tessera.spatial.bench.problem import DTYPES, Problem

if TYPE_CHECKING:
    from tessera.geometry import Box, HaloPlan


EPILOG = """\
examples:
  tessera halo plan --image-size 64 --num-spatial-parts 4 --slice-method square -o plan.svg
  tessera halo plan --image-size 224 --kernel 7 --stride 2 --padding 3 --num-spatial-parts 6 --slice-method 2x3
  tessera halo plan --image-size 1024x512 --num-spatial-parts 16 --in-channels 64 --dtype bfloat16 -o plan.html
  tessera halo plan --json
"""

MOST_DRAWN = 256


def configure(parser: argparse.ArgumentParser) -> None:
    cut = parser.add_argument_group("the image and its cut")
    cut.add_argument(
        "--image-size", type=checked(size), default=(64, 64), metavar="N|HxW", help="of the whole image (default: 64)"
    )
    cut.add_argument("--num-spatial-parts", type=int, default=4, metavar="N", help="workers that share it (default: 4)")
    cut.add_argument(
        "--slice-method", default="square", metavar="HOW", help=f"one of {', '.join(SLICE_METHODS)} (default: square)"
    )
    window = parser.add_argument_group("the convolution")
    width = window.add_mutually_exclusive_group()
    width.add_argument("--halo-len", type=int, metavar="N", help="a kernel of 2 N + 1 pixels (default: 1)")
    width.add_argument("--kernel", type=checked(size), metavar="N|HxW", help="the window itself")
    window.add_argument(
        "--stride", type=checked(size), default=(1, 1), metavar="N|HxW", help="of the window (default: 1)"
    )
    window.add_argument(
        "--dilation", type=checked(size), default=(1, 1), metavar="N|HxW", help="of the window (default: 1)"
    )
    window.add_argument(
        "--padding",
        type=checked(size),
        metavar="N|HxW",
        help="on every side (default: so that an odd kernel keeps the size)",
    )
    window.add_argument("--padding-mode", choices=MODES, default="zeros", help="what it holds (default: zeros)")
    moved = parser.add_argument_group("the bytes of a pixel")
    moved.add_argument("--batch-size", type=int, default=1, metavar="N", help="images at a time (default: 1)")
    moved.add_argument("--in-channels", type=int, default=1, metavar="N", help="of the image (default: 1)")
    moved.add_argument("--dtype", choices=tuple(DTYPES), default="float32", help="of a channel (default: float32)")
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    problem = _problem(args)
    plan = problem.plan()
    suffix = Path(args.output).suffix if args.output else ""
    if args.form == "terminal" and suffix in (".svg", ".html"):
        _draw(plan, problem.pixel_bytes, Path(args.output))
        _write(plan, problem, args.form, None)
        print(f"picture: {args.output}")
        return OK
    _write(plan, problem, args.form, args.output)
    return OK


def _problem(args: argparse.Namespace) -> Problem:

    halo = 1 if args.halo_len is None else args.halo_len
    if halo < 0:
        raise TesseraError("--halo-len", got=halo, allowed="0 or more")
    kernel = args.kernel or (2 * halo + 1,) * 2
    same = tuple((k - 1) * d // 2 for k, d in zip(kernel, args.dilation, strict=True))
    return Problem.of(
        {
            "image_size": args.image_size,
            "num_spatial_parts": args.num_spatial_parts,
            "slice_method": args.slice_method,
            "kernel": kernel,
            "stride": args.stride,
            "dilation": args.dilation,
            "padding": same if args.padding is None else args.padding,
            "padding_mode": args.padding_mode,
            "batch_size": args.batch_size,
            "in_channels": args.in_channels,
            "dtype": args.dtype,
        }
    )


def _draw(plan: HaloPlan, pixel_bytes: int, path: Path) -> None:
    from tessera.report.page import write_page
    from tessera.spatial.picture.page import plan_page
    from tessera.spatial.picture.plan import plan_svg

    if len(plan.workers) > MOST_DRAWN:
        raise TesseraError(
            "too many workers for a picture", got=len(plan.workers), allowed=f"{MOST_DRAWN} or fewer", do="leave -o out"
        )
    write_page(plan_page(plan, pixel_bytes) if path.suffix == ".html" else plan_svg(plan), path)


def _write(plan: HaloPlan, problem: Problem, form: str, output: str | None) -> None:
    from tessera.report.destination import destination
    from tessera.report.figures import format_bytes
    from tessera.report.tables import Column, Form, render
    from tessera.spatial.network_cost import link_table
    from tessera.spatial.picture.plan import describe

    links = link_table(plan, problem.pixel_bytes)
    with destination(output) as stream:
        if form == "json":
            json.dump(_plain(plan, problem), stream, indent=1)
            stream.write("\n")
            return
        shown: Form = "markdown" if form == "markdown" else "csv" if form == "csv" else "terminal"
        columns = [Column("from"), Column("to"), Column("pixels", "right"), Column("bytes", "right")]
        rows = [[*link[:3], link[3] if shown == "csv" else format_bytes(link[3])] for link in links]
        title = f"{describe(plan)}: who sends what to whom"
        if shown == "terminal":  # above the table, which may be narrower
            stream.write(f"{title}\n")
        render(columns, rows, shown, stream, title=title if shown == "markdown" else "")
        if shown == "terminal":
            received = [sum(pixels for _, to, pixels, _ in links if to == w) for w in range(len(plan.workers))]
            most = max(received) * problem.pixel_bytes
            stream.write(
                f"{len(links)} links, {format_bytes(sum(link[3] for link in links))} in all, "
                f"at most {format_bytes(most)} to one worker\n"
            )


def _plain(plan: HaloPlan, problem: Problem) -> dict[str, object]:
    """Everything as plain values; a box is a list of [start, stop] over n, h and w."""
    return {
        "image": list(plan.inputs.sizes),
        "output": list(plan.outputs.sizes),
        "mesh": [problem.mesh.rows, problem.mesh.cols],
        "pixel_bytes": problem.pixel_bytes,
        "workers": [
            {
                "worker": number,
                "owned": _ranges(worker.owned),
                "reads": _ranges(worker.need),
                "padding": [_ranges(pad) for pad in worker.pads],
                "receives": [
                    {
                        "from": move.source,
                        "taken": _ranges(move.taken),
                        "placed": _ranges(move.placed),
                        "pixels": move.taken.size,
                        "bytes": move.taken.size * problem.pixel_bytes,
                    }
                    for move in worker.receives
                ],
            }
            for number, worker in enumerate(plan.workers)
        ],
    }


def _ranges(box: Box) -> list[list[int]]:
    return [[dim.start, dim.stop] for dim in box.dims]
