"""The options of `tessera conv`: the shape, the machine, every setting; one value each, or several with --sweep."""

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
from tessera.coregrid.cases import SETTINGS, SHAPE, WHERE, WORDS
from tessera.errors import TesseraError

USUAL: dict[str, Any] = SHAPE | WHERE | SETTINGS

HELP = {
    "batch_size": "images at a time",
    "image_size": "height and width of the input",
    "in_channels": "of the input",
    "out_channels": "of the output",
    "kernel": "the window",
    "stride": "of the window",
    "padding": "N, HxW, or TOP,BOTTOM,LEFT,RIGHT (default: so that an odd kernel keeps the size)",
    "dilation": "of the window",
    "groups": "that channels are divided into",
    "machine": "a machine by name, or a TOML file; see `tessera list machines`",
    "shard_layout": "HEIGHT, BLOCK or WIDTH; `search` takes the fastest that fits, `auto` the chip's own choice",
    "dtype": "format of activations and output",
    "weights_dtype": "format of weights and bias",
    "activation": "applied to the output on the cores, e.g. relu",
    "grid": "cores to use, ROWSxCOLS; without a layout, one is chosen for them",
    "input_channels_alignment": "8, 16 or 32 channels",
    "act_block_h_override": "sticks of an activation block, a multiple of 32; 0 is the whole shard",
    "act_block_w_div": "parts of the activation block's width, with WIDTH; no other layout reads it",
    "output_layout": "tile or row_major",
    "halo_mode": "span, one range of sticks per core, or exact, only those that windows touch",
    "math_fidelity": "passes of the matrix engine",
    "slice_axis": "height or width: go through global memory in slices along it",
    "num_slices": "of them; 0 is as many as it takes",
    "bias": "add a bias",
    "deallocate_activation": "free the input as soon as its haloed copy is made",
    "reallocate_halo_output": "move the haloed input together with what is free",
    "transpose_shards": "lay the shards of BLOCK in rows",
    "enable_act_double_buffer": "two buffers for activations",
    "enable_weights_double_buffer": "two buffers for weights",
    "enable_split_reader": "two readers instead of one",
    "full_inner_dim": "all rows of the kernel in one block, with BLOCK",
    "math_approx_mode": "approximate activation functions",
    "dst_full_sync_en": "all registers to one side at a time",
    "fp32_dest_acc_en": "accumulate in 32 bits",
    "packer_l1_acc": "add partial sums in the core's memory",
}
GROUPS = {
    "the convolution": tuple(SHAPE),
    "where and how it lies": tuple(WHERE),
    "settings": tuple(SETTINGS),
}
SIZES = ("image_size", "kernel", "stride", "dilation")


def whole_or_pair(text: str) -> int | list[int]:
    """`3` or `3x5`.

    >>> whole_or_pair("3"), whole_or_pair("3x5")
    (3, [3, 5])
    """
    height, width = size(text)
    return height if height == width else [height, width]


def padding(text: str) -> int | list[int]:
    """`1`, `1x2`, or four numbers: top, bottom, left, right.

    >>> padding("1"), padding("0,1,0,1")
    (1, [0, 1, 0, 1])
    """
    if "," not in text:
        return whole_or_pair(text)
    sides = [number(part) for part in text.split(",")]
    if len(sides) != 4:
        raise TesseraError("--padding", got=text, allowed="N, HxW, or TOP,BOTTOM,LEFT,RIGHT")
    return sides


def reader(axis: str) -> Callable[[str], Any]:
    """How a value of an axis is read, wherever it stands."""
    if axis == "padding":
        return padding
    if axis in SIZES:
        return whole_or_pair
    usual = USUAL[axis]
    return truth if isinstance(usual, bool) else number if isinstance(usual, int) else str


def add_case_options(parser: argparse.ArgumentParser) -> None:
    """Everything that says what is planned and run."""
    what = parser.add_argument_group("tables and networks")
    what.add_argument("--table", metavar="MODEL", help="every convolution of a model instead of one, e.g. resnet50")
    what.add_argument("--layers", type=names, default=[], metavar="A,B", help="of the table: only these")
    what.add_argument(
        "--network", metavar="MODEL", help="plan a whole network: how every layer lies, and its predicted images/s"
    )
    for title, axes in GROUPS.items():
        group = parser.add_argument_group(title)
        for axis in axes:
            _add(group, axis)
    parser.add_argument(
        "--sweep",
        action="append",
        default=[],
        metavar="OPTION=A;B",
        help="several values of any of these options, e.g. shard-layout=HEIGHT;BLOCK; repeatable: all combinations",
    )


def _add(group: argparse._ArgumentGroup, axis: str) -> None:
    usual = USUAL[axis]
    if isinstance(usual, bool):
        said = f"{HELP[axis]} (default: {'on' if usual else 'off'})"
        group.add_argument(option(axis), action=argparse.BooleanOptionalAction, default=None, help=said)
        return
    said = f"{HELP[axis]} (default: {usual})" if usual not in ("", 0, None) else HELP[axis]
    kind = reader(axis)
    metavar = "N|HxW" if kind is whole_or_pair else "N" if kind is number else "WORD"
    choices = [word for word in WORDS[axis] if word] if axis in WORDS else None
    group.add_argument(
        option(axis), type=checked(kind), choices=choices, metavar=None if choices else metavar, help=said
    )


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Everything that says how it is run, drawn, and what becomes of the result."""
    parser.add_argument("--list", action="store_true", help="list the cases that this would run, and end")
    parser.add_argument("--plan-only", action="store_true", help="plan and predict, run nothing")
    parser.add_argument(
        "--candidates", type=int, default=5, metavar="N", help="rows of the search that are shown (default: 5)"
    )
    parser.add_argument(
        "--picture", metavar="FILE", help="draw the plan: .svg shards and halos, .html all pictures on one page"
    )
    parser.add_argument("--trace", metavar="FILE", help="the predicted timeline for Perfetto or chrome://tracing")
    add_sampling(parser)
    add_launch(parser, ranks=False)
    add_store(parser, writes=True)
    add_output(parser)


def axes_of(args: argparse.Namespace) -> dict[str, list[Any]]:
    """The axes of the cases that are asked for."""
    axes = {axis: [value] for axis in USUAL if (value := getattr(args, axis)) is not None}
    for item in args.sweep:
        axis, text = swept(item, USUAL, axes, "OPTION=A;B")
        # a padding has commas of its own
        parts = text.split(";") if ";" in text or axis == "padding" else names(text)
        axes[axis] = [reader(axis)(part.strip()) for part in parts if part.strip()]
    return axes
