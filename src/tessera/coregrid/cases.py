"""From what a user asks for to the convolution cases that answer it. Imports no torch until a case is checked."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tessera.errors import TesseraError, did_you_mean
from tessera.results.record import Case

FEATURE = "conv"
BENCHMARKS = {
    "conv2d": "one convolution on a grid of cores: planned, executed, counted and held against torch",
    "network": "a whole network planned layer by layer, and its predicted images/s",
}
SEARCH, AUTO = "search", "auto"
CHOICES = (SEARCH, AUTO, "HEIGHT", "BLOCK", "WIDTH")
FORMATS = ("float32", "bfloat16", "bfloat8_b", "bfloat4_b")
FIDELITIES = ("LoFi", "HiFi2", "HiFi3", "HiFi4")

# Every axis of a convolution with its usual value; settings and windows that are as usual are left out of a case.
SHAPE: dict[str, Any] = {
    "batch_size": 1,
    "image_size": 56,
    "in_channels": 64,
    "out_channels": 64,
    "kernel": 3,
    "stride": 1,
    "padding": None,  # so that an odd kernel keeps the size
    "dilation": 1,
    "groups": 1,
}
WHERE: dict[str, Any] = {"machine": "wormhole-n150", "shard_layout": SEARCH, "dtype": "bfloat16"}
SETTINGS: dict[str, Any] = {
    "weights_dtype": "bfloat16",
    "bias": True,
    "activation": "",
    "grid": "",
    "input_channels_alignment": 32,
    "deallocate_activation": False,
    "reallocate_halo_output": False,
    "act_block_h_override": 0,
    "act_block_w_div": 1,
    "transpose_shards": True,
    "output_layout": "tile",
    "enable_act_double_buffer": False,
    "enable_weights_double_buffer": False,
    "enable_split_reader": False,
    "full_inner_dim": False,
    "halo_mode": "span",
    "math_fidelity": "HiFi4",
    "math_approx_mode": True,
    "dst_full_sync_en": False,
    "fp32_dest_acc_en": False,
    "packer_l1_acc": False,
    "slice_axis": "",
    "num_slices": 0,
}
NETWORK: dict[str, Any] = {"network": "resnet50", "machine": "wormhole-n150", "batch_size": 16}
WORDS: dict[str, tuple[Any, ...]] = {
    "shard_layout": CHOICES,
    "dtype": FORMATS,
    "weights_dtype": FORMATS,
    "math_fidelity": FIDELITIES,
    "output_layout": ("tile", "row_major"),
    "halo_mode": ("span", "exact"),
    "slice_axis": ("", "height", "width"),
}


def cases(
    names: Sequence[str] = ("conv2d",), *, table: Sequence[str] = (), layers: Sequence[str] = (), **axes: Sequence[Any]
) -> list[Case]:
    """Every benchmark named, with every combination of its axes; `table` takes the shapes from models by name.

    `layers` picks rows of the tables by the names of their layers.

    >>> [case.key for case in cases(image_size=[14], in_channels=[256], out_channels=[256])]
    ['conv/conv2d[batch_size=1,dtype=bfloat16,image_size=14,in_channels=256,kernel=3,machine=wormhole-n150,\
out_channels=256,padding=1,shard_layout=search]']
    """
    found: list[Case] = []
    for name in names:
        if name not in BENCHMARKS:
            raise TesseraError("unknown benchmark", got=name, allowed=BENCHMARKS)
        found += _networks(axes) if name == "network" else _convolutions(table, layers, axes)
    return list({case.key: case for case in found}.values())


def _networks(axes: Mapping[str, Sequence[Any]]) -> list[Case]:
    _check(axes, NETWORK)
    own = {axis: axes.get(axis, (usual,)) for axis, usual in NETWORK.items()}
    return [Case(feature=FEATURE, name="network", params=params) for params in _product(own)]


def _convolutions(tables: Sequence[str], layers: Sequence[str], axes: Mapping[str, Sequence[Any]]) -> list[Case]:
    from tessera.coregrid.problem import Problem

    usual = SHAPE | WHERE | SETTINGS
    _check(axes, usual)
    if tables and (twice := [axis for axis in SHAPE if axis in axes and axis not in ("batch_size", "image_size")]):
        raise TesseraError("a table has its own shapes", got=", ".join(twice), do="leave them out")
    if layers and not tables:
        raise TesseraError("layers are those of a table", got=", ".join(layers), do="name one with table")
    own = {axis: axes.get(axis, (value,)) for axis, value in usual.items()}
    found = []
    for params in _product(own):
        for shape in _rows(tables, layers, params, "image_size" in axes) if tables else [{}]:
            full = {**params, **shape}
            if full["padding"] is None:
                full["padding"] = _same(full["kernel"], full["dilation"])
            kept = {axis: value for axis, value in full.items() if axis in WHERE or not _as_usual(axis, value)}
            Problem.of(kept)  # what cannot be is refused here as well
            found.append(Case(feature=FEATURE, name="conv2d", params=kept))
    return found


def _as_usual(axis: str, value: Any) -> bool:
    """Whether an axis need not be said: a setting as usual, a window that does nothing."""
    if axis in SETTINGS:
        return bool(value == SETTINGS[axis])
    return axis in ("stride", "dilation", "groups") and value == 1


def _rows(
    tables: Sequence[str], layers: Sequence[str], params: Mapping[str, Any], sized: bool
) -> Iterator[dict[str, Any]]:
    """The shapes of tables, each under its layer's name."""
    from tessera.coregrid.networks.tables import table

    if sized and not isinstance(params["image_size"], int):
        raise TesseraError("the images of a table are square", got=params["image_size"])
    wanted = set(layers)
    for name in tables:
        for row in table(name, int(params["batch_size"]), params["image_size"] if sized else None):
            if not layers or row.name in wanted:
                wanted.discard(row.name)
                conv = row.conv
                (top, bottom), (left, right) = conv.padding
                yield {
                    "layer": f"{name}:{row.name}",
                    "image_size": _short((conv.height, conv.width)),
                    "in_channels": conv.in_channels,
                    "out_channels": conv.out_channels,
                    "kernel": _short(conv.kernel),
                    "stride": _short(conv.stride),
                    "padding": _short((top, left)) if top == bottom and left == right else [top, bottom, left, right],
                    "dilation": _short(conv.dilation),
                    "groups": conv.groups,
                }
    if wanted:
        raise TesseraError("no such layer in the table", got=", ".join(sorted(wanted)), do="see `tessera conv --list`")


def _same(kernel: Any, dilation: Any) -> int | list[int]:
    """The padding with which an odd kernel keeps the size of an image."""
    pairs = ([value, value] if isinstance(value, int) else list(value) for value in (kernel, dilation))
    down, right = ((k - 1) * d // 2 for k, d in zip(*pairs, strict=True))
    return _short((down, right))


def _short(pair: tuple[int, int]) -> int | list[int]:
    return pair[0] if pair[0] == pair[1] else list(pair)


def _check(axes: Mapping[str, Sequence[Any]], known: Mapping[str, Any]) -> None:
    for axis, values in axes.items():
        if axis not in known:
            raise TesseraError("unknown axis of a case", got=axis, allowed=known, do=did_you_mean(axis, known))
        for value in values:
            if axis in WORDS and value not in WORDS[axis]:
                raise TesseraError(f"unknown {axis}", got=value, allowed=[repr(word) for word in WORDS[axis]])


def _product(axes: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))
