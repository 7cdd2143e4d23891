"""List and draw the halo exchange of a convolution whose image is split over workers; run nothing.

The table lists the bytes between each pair of workers. -o plan.svg draws the exchange; -o plan.html enlarges the tile
of the worker under the pointer.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tessera.cli.options import OUTPUT_OPTIONS, get_picture_path
from tessera.errors import EXIT_OK, TesseraError
from tessera.spatial.cases import AXES, PLAN, expand_params
from tessera.spatial.problem import HaloProblem

if TYPE_CHECKING:
    from tessera.geometry import Box, HaloPlan
    from tessera.report.tables import OutputFormat


EPILOG = """\
examples:
  tessera halo plan --image-size 64 --num-spatial-parts 4 --slice-method square -o plan.svg
  tessera halo plan --image-size 224 --kernel 7 --stride 2 --padding 3 --num-spatial-parts 6 --slice-method 2x3
  tessera halo plan --image-size 1024x512 --num-spatial-parts 16 --in-channels 64 --dtype bfloat16 -o plan.html
  tessera halo plan --json
"""

OPTIONS = (*AXES.select(PLAN), *OUTPUT_OPTIONS)
MAX_DRAWN_WORKERS = 256


def run(args: argparse.Namespace) -> int:
    values = AXES.read_values(vars(args))
    AXES.check_values(values)
    (params,) = expand_params(PLAN, values)
    problem = HaloProblem.of(params)
    plan = problem.plan()
    if path := get_picture_path(args):
        _write_picture(plan, problem.pixel_bytes, path)
        _print_plan(plan, problem, args.output_format, None)
        print(f"picture: {args.output}")
    else:
        _print_plan(plan, problem, args.output_format, args.output)
    return EXIT_OK


def _write_picture(plan: HaloPlan, pixel_bytes: int, path: Path) -> None:
    from tessera.report.page import write_page
    from tessera.spatial.picture.page import build_plan_page
    from tessera.spatial.picture.plan import draw_plan

    if len(plan.inputs.sizes) != 3:
        raise TesseraError("plans of volumes are not drawn", do="omit -o, or use -o plan.txt")
    if len(plan.workers) > MAX_DRAWN_WORKERS:
        raise TesseraError(
            "the plan has too many workers for a picture",
            got=len(plan.workers),
            allowed=f"{MAX_DRAWN_WORKERS} or fewer",
            do="omit -o",
        )
    write_page(build_plan_page(plan, pixel_bytes) if path.suffix == ".html" else draw_plan(plan), path)


def _print_plan(plan: HaloPlan, problem: HaloProblem, output_format: OutputFormat, output: str | None) -> None:
    from tessera.report.blocks import Column, Heading, Table
    from tessera.report.figures import format_bytes
    from tessera.report.tables import print_result
    from tessera.spatial.cost import list_links
    from tessera.spatial.picture.plan import describe_plan

    links = list_links(plan, problem.pixel_bytes)
    columns: list[Heading] = ["from", "to", Column("pixels", "number"), Column("bytes", "number")]
    rows = [[*link[:3], format_bytes(link[3])] for link in links]
    table = Table(columns, rows, f"{describe_plan(plan)}: messages between workers")
    received = [sum(pixels for _, to, pixels, _ in links if to == w) for w in range(len(plan.workers))]
    summary = (
        f"{len(links)} links, {format_bytes(sum(link[3] for link in links))} in all, "
        f"at most {format_bytes(max(received) * problem.pixel_bytes)} to one worker"
    )
    print_result(
        output_format,
        output,
        data=_to_plain_plan(plan, problem),
        rows=Table(columns, links),
        blocks=[table, [summary]] if output_format == "terminal" else [table],
    )


def _to_plain_plan(plan: HaloPlan, problem: HaloProblem) -> dict[str, object]:
    """Return the plan as plain values; a box is a list of [start, stop] over n and the spatial dims."""
    return {
        "image": list(plan.inputs.sizes),
        "output": list(plan.outputs.sizes),
        "mesh": list(problem.mesh),
        "pixel_bytes": problem.pixel_bytes,
        "workers": [
            {
                "worker": number,
                "owned": _to_ranges(worker.owned),
                "reads": _to_ranges(worker.need),
                "padding": [_to_ranges(pad) for pad in worker.pads],
                "receives": [
                    {
                        "from": move.source,
                        "taken": _to_ranges(move.source_box),
                        "placed": _to_ranges(move.target_box),
                        "pixels": move.source_box.size,
                        "bytes": move.source_box.size * problem.pixel_bytes,
                    }
                    for move in worker.receives
                ],
            }
            for number, worker in enumerate(plan.workers)
        ],
    }


def _to_ranges(box: Box) -> list[list[int]]:
    return [[dim.start, dim.stop] for dim in box.dims]
