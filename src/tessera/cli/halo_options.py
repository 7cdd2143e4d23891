"""The options of the halo benchmarks: one value each, or several with --sweep, and what they make of a case."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from tessera.cli.options import (
    add_launch,
    add_output,
    add_sampling,
    add_store,
    checked,
    names,
    number,
    option,
    size,
    swept,
    truth,
)
from tessera.errors import TesseraError
from tessera.geometry.halo import MODES
from tessera.geometry.partition import SLICE_METHODS
from tessera.spatial.bench.problem import DTYPES
from tessera.spatial.cases import AXES, LAYOUTS, LEAST_ROUNDS, MEANINGLESS, OVERLAPS
from tessera.transport.choose import TRANSPORTS

WARMUP, ITERATIONS = 10, 100


def height_and_width(text: str) -> list[int]:
    return list(size(text))


# How a value is read, wherever it stands: after its own option or in a sweep.
READ: dict[str, Callable[[str], Any]] = {
    "image_size": height_and_width,
    "batch_size": number,
    "halo_len": number,
    "in_channels": number,
    "out_channels": number,
    "num_spatial_parts": number,
    "slice_method": str,
    "kernel": height_and_width,
    "stride": height_and_width,
    "dilation": height_and_width,
    "padding": height_and_width,
    "padding_mode": str,
    "dtype": str,
    "transport": str,
    "layout": str,
    "overlap": str,
    "backward": truth,
    "fp16_allreduce": truth,
}
HELP = {
    "image_size": "of the whole image, in pixels",
    "batch_size": "images at a time",
    "halo_len": "pixels that a window reaches to each side: a kernel of 2 N + 1",
    "in_channels": "of the image",
    "out_channels": "of the convolution",
    "num_spatial_parts": "ranks that the image is cut over",
    "slice_method": f"how: {', '.join(SLICE_METHODS)}",
    "kernel": "the window itself, instead of --halo-len",
    "stride": "of the window",
    "dilation": "of the window",
    "padding": "on every side (default: so that an odd kernel keeps the size)",
    "padding_mode": f"of {', '.join(MODES)}",
    "dtype": f"of {', '.join(DTYPES)}",
    "transport": f"of {', '.join(TRANSPORTS)}",
    "layout": f"of {', '.join(LAYOUTS)}",
    "overlap": f"of {', '.join(OVERLAPS)}",
}
METAVARS: dict[Callable[[str], Any], str] = {height_and_width: "N|HxW", number: "N"}
# Options that every benchmark takes, because scripts give them to all; where they act on nothing, that is said.
EVERYWHERE = ("out_channels", "fp16_allreduce")


def add_case_options(parser: argparse.ArgumentParser, benchmark: str) -> None:
    """Everything that says what is run."""
    what = parser.add_argument_group("the image, the convolution and the cut")
    for axis, text in HELP.items():
        if axis in MEANINGLESS[benchmark] and axis not in EVERYWHERE:
            continue
        usual = ",".join(map(str, AXES[axis]))
        said = text if "default" in text or not usual else f"{text} (default: {usual})"
        several = axis == "overlap"
        what.add_argument(
            option(axis),
            type=names if several else checked(READ[axis]),
            metavar="A,B" if several else METAVARS.get(READ[axis], "WORD"),
            help=said,
        )
    if "backward" not in MEANINGLESS[benchmark]:
        what.add_argument("--backward", action="store_true", default=None, help="the backward pass too")
    what.add_argument(
        "--fp16-allreduce",
        action="store_true",
        default=None,
        help="sum the weights' gradients in half precision; acts in compute --backward",
    )
    what.add_argument("--channels-last", action="store_true", help="the same as --layout channels_last")
    what.add_argument(
        "--sweep",
        action="append",
        default=[],
        metavar="OPTION=A,B",
        help="several values of any of these options, e.g. image-size=256,512,1024; repeatable: all combinations",
    )


def add_run_options(parser: argparse.ArgumentParser, benchmark: str) -> None:
    """Everything that says how it is run, and what becomes of the result."""
    parser.add_argument("--list", action="store_true", help="list the cases that this would run, and end")
    if benchmark == "validate":
        group = parser.add_argument_group("rounds")
        group.add_argument(
            "--iterations", type=int, metavar="N", help=f"rounds of fresh input (default: {LEAST_ROUNDS}, the fewest)"
        )
        group.add_argument("--quick", action="store_true", help=f"{LEAST_ROUNDS} rounds, whatever --iterations says")
        group.add_argument("--warmup", type=int, metavar="N", help="taken, but nothing is timed")
    else:
        add_sampling(parser)
    add_launch(parser, ranks=False)
    add_store(parser, writes=True)
    add_output(parser)


def axes_of(args: argparse.Namespace, benchmark: str) -> tuple[dict[str, list[Any]], list[str]]:
    """The axes of the cases that are asked for, and what has to be said about options without effect."""
    given = {axis: getattr(args, axis, None) for axis in READ}
    axes = {axis: value if axis == "overlap" else [value] for axis, value in given.items() if value is not None}
    if args.channels_last and axes.setdefault("layout", ["channels_last"]) != ["channels_last"]:
        raise TesseraError("--channels-last and --layout say two things", got=axes["layout"][0])
    for item in args.sweep:
        axis, text = swept(item, READ, axes, "OPTION=A,B")
        axes[axis] = [READ[axis](word) for word in names(text)]
    notes = []
    for axis in [axis for axis in axes if axis in MEANINGLESS[benchmark]]:
        if axis not in EVERYWHERE:
            raise TesseraError(f"{option(axis)} has no meaning for {benchmark}", do="leave it out")
        notes.append(f"{option(axis)} has no effect on {benchmark}")
        del axes[axis]
    if benchmark == "compute" and any(axes.get("fp16_allreduce", ())) and not any(axes.get("backward", ())):
        notes.append("--fp16-allreduce has no effect without --backward: there are no gradients to sum")
        del axes["fp16_allreduce"]
    if benchmark == "validate":
        axes["rounds"] = [LEAST_ROUNDS if args.iterations is None or args.quick else args.iterations]
        if args.warmup is not None:
            notes.append("--warmup has no effect on validate: nothing is timed")
    return axes, notes
