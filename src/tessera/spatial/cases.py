"""From what a user asks for to the halo cases that answer it, and how each has to be launched."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tessera.errors import TesseraError, did_you_mean
from tessera.launch import LaunchConfig
from tessera.results.record import Case
from tessera.spatial.bench.problem import DTYPES, Problem, pair
from tessera.transport.choose import TRANSPORTS, spawn_of

BENCHMARKS = {
    "exchange": "what it costs to exchange the borders",
    "compute": "exchange, convolution, both, and the two overlapped",
    "validate": "every received pixel, the output and all gradients against the uncut convolution",
}
OVERLAPS = ("none", "split", "recompute", "auto")
LAYOUTS = ("auto", "contiguous", "channels_last")
LEAST_ROUNDS = 3  # what is left over from a round before, or one before that, shows in the third at the latest

# Every axis with its usual value; those that decide about the launch come first, so that its cases follow one another.
AXES: dict[str, tuple[Any, ...]] = {
    "transport": ("auto",),
    "num_spatial_parts": (4,),
    "slice_method": ("square",),
    "image_size": (8,),
    "batch_size": (1,),
    "in_channels": (1,),
    "out_channels": (256,),
    "halo_len": (1,),
    "kernel": (),
    "stride": (1,),
    "dilation": (1,),
    "padding": (),
    "padding_mode": ("zeros",),
    "dtype": ("float32",),
    "layout": ("auto",),
    "overlap": ("none", "split", "recompute"),
    "backward": (False,),
    "fp16_allreduce": (False,),
    "rounds": (LEAST_ROUNDS,),
}
# What an axis has no meaning for: there is nothing that it could change.
MEANINGLESS = {
    "exchange": {"out_channels", "overlap", "fp16_allreduce", "rounds"},
    "compute": {"rounds"},
    "validate": {"backward", "fp16_allreduce"},
}
SIZES = ("image_size", "kernel", "stride", "dilation", "padding")
# Left out of a case where they are as usual.
UNSAID = {"stride": 1, "dilation": 1, "padding_mode": "zeros", "backward": False, "fp16_allreduce": False}
WORDS: dict[str, tuple[Any, ...]] = {
    "transport": tuple(TRANSPORTS),
    "dtype": tuple(DTYPES),
    "layout": LAYOUTS,
    "overlap": OVERLAPS,
    "backward": (False, True),
    "fp16_allreduce": (False, True),
}


def cases(names: Sequence[str] = tuple(BENCHMARKS), **axes: Sequence[Any]) -> list[Case]:
    """Every benchmark named, with every combination of the axes that mean something for it.

    Without `kernel` the window follows from `halo_len`: 2 * halo_len + 1 pixels, padded so that the output is as large
    as the image. A validation takes all its overlaps in one case.

    >>> [case.key for case in cases(["exchange"], image_size=[64], num_spatial_parts=[2], slice_method=["1x2"])]
    ['halo/exchange[batch_size=1,dtype=float32,image_size=64,in_channels=1,kernel=3,layout=auto,num_spatial_parts=2,\
padding=1,slice_method="1x2",transport=auto]']
    """
    for name in names:
        if name not in BENCHMARKS:
            raise TesseraError("unknown halo benchmark", got=name, allowed=BENCHMARKS)
    _check(axes)
    for axis in axes:
        if all(axis in MEANINGLESS[name] for name in names):
            raise TesseraError(f"{axis} has no meaning for {' and '.join(names)}", do="leave it out")
    found = []
    for name in names:
        own = {axis: axes.get(axis, usual) for axis, usual in AXES.items() if axis not in MEANINGLESS[name]}
        if name == "validate":
            own["overlap"] = (list(own["overlap"]),)
        own = {axis: values for axis, values in own.items() if values or axis not in ("kernel", "padding")}
        for combination in itertools.product(*own.values()):
            params = _params(dict(zip(own, combination, strict=True)))
            problem = Problem.of(params)
            problem.plan()  # what no plan can be made of is refused here as well
            found.append(Case(feature="halo", name=name, params=params))
    found.sort(key=lambda case: (str(case.params["transport"]), int(case.params["num_spatial_parts"])))
    return list({case.key: case for case in found}.values())


def _check(axes: Mapping[str, Sequence[Any]]) -> None:
    for axis, values in axes.items():
        if axis not in AXES:
            raise TesseraError("unknown axis of a halo case", got=axis, allowed=AXES, do=did_you_mean(axis, AXES))
        if not values:  # there would be no case, or one that checks nothing
            raise TesseraError(f"{axis} has no values", allowed=WORDS.get(axis), do="name one, or leave it out")
        for value in values:
            if axis in WORDS and value not in WORDS[axis]:
                raise TesseraError(f"unknown {axis}", got=value, allowed=[str(word) for word in WORDS[axis]])
    for value in axes.get("halo_len", ()):
        if not isinstance(value, int) or value < 0:
            raise TesseraError("--halo-len", got=value, allowed="0 or more")
    for value in axes.get("rounds", ()):
        if not isinstance(value, int) or value < LEAST_ROUNDS:
            raise TesseraError("a validation takes rounds of fresh input", got=value, allowed=f"{LEAST_ROUNDS} or more")
    if axes.get("kernel") and axes.get("halo_len"):
        raise TesseraError("--kernel and --halo-len both say how large the window is", do="give one of them")


def _params(chosen: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a case: the window spelled out, sizes as one number where both are alike."""
    halo = chosen.pop("halo_len")
    chosen.setdefault("kernel", 2 * halo + 1)
    if "padding" not in chosen:
        kernel = pair(chosen["kernel"], "kernel", least=1)
        dilation = pair(chosen["dilation"], "dilation", least=1)
        chosen["padding"] = [(k - 1) * d // 2 for k, d in zip(kernel, dilation, strict=True)]
    for name in SIZES:
        height, width = pair(chosen[name], name, least=0)
        chosen[name] = height if height == width else [height, width]
    return {name: value for name, value in chosen.items() if name not in UNSAID or value != UNSAID[name]}


def launch(case: Case, base: LaunchConfig) -> LaunchConfig:
    """As many ranks as the image has parts, started by what the transport needs; an uncut image needs no ranks."""
    parts = int(case.params["num_spatial_parts"])
    spawn = "processes" if parts == 1 else spawn_of(str(case.params["transport"]))
    return replace(base, spawn=spawn, workers=parts)
