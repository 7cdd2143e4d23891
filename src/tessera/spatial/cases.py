"""The axes of the halo benchmarks, the cases of their combinations, and the launch of each case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tessera.axes import Axes, Axis, Option, parse_bool, parse_dims, parse_int
from tessera.errors import TesseraError
from tessera.geometry.halo import PADDING_MODES
from tessera.geometry.partition import SLICE_METHODS
from tessera.launch import LaunchConfig
from tessera.results.record import Case
from tessera.spatial.problem import DTYPES, HaloProblem, NetworkProblem, parse_dim_sizes, parse_image_size
from tessera.transport.registry import TRANSPORTS, get_spawn

BENCHMARKS = {
    "exchange": "time of exchanging the halos",
    "compute": "times of exchange, convolution, both in turn, and both overlapped",
    "network": "time of a whole network on a split image, compared with the unsplit network",
    "validate": "comparison of every received pixel, the output and all gradients with the unsplit convolution",
}
PLAN = "plan"  # benchmark name: list and draw an exchange without running it
NETWORK = "network"
CONVOLUTION_BENCHMARKS = ("exchange", "compute", "validate", PLAN)
OVERLAPS = ("none", "split", "recompute", "auto")
LAYOUTS = ("auto", "contiguous", "channels_last")
MIN_ROUNDS = 3  # the third round detects stale data of the two rounds before


def parse_halo_depth(text: str) -> int | str:
    """Parse `auto` or a whole number."""
    return text if text == "auto" else parse_int(text)


IMAGE, CONVOLUTION, DISTRIBUTION = "image", "convolution", "distribution and execution"
# Axes that determine the launch come first, so that cases with the same launch are consecutive.
AXES = Axes(
    "halo",
    (
        Axis(
            name="transport",
            choices=tuple(TRANSPORTS),
            default="auto",
            applies_to=tuple(BENCHMARKS),
            group=DISTRIBUTION,
            help="transport between ranks",
        ),
        Axis(
            name="num_spatial_parts",
            parse=parse_int,
            default=4,
            group=DISTRIBUTION,
            help="ranks that the image is split over",
        ),
        Axis(
            name="slice_method",
            default="square",
            metavar="HOW",
            group=DISTRIBUTION,
            help=f"arrangement of the tiles: {', '.join(SLICE_METHODS)}",
        ),
        Axis(
            name="image_size",
            parse=parse_dims,
            default=8,
            defaults={PLAN: 64, NETWORK: 128},
            group=IMAGE,
            help="size of the whole image or volume in pixels",
        ),
        Axis(name="batch_size", parse=parse_int, default=1, group=IMAGE, help="images per batch"),
        Axis(
            name="in_channels",
            parse=parse_int,
            default=1,
            defaults={NETWORK: 3},
            group=IMAGE,
            help="channels of the image",
        ),
        Axis(
            name="model",
            default="resnet18",
            applies_to=(NETWORK,),
            group="network",
            help="network: a registered model or module:callable",
        ),
        Axis(
            name="out_channels",
            parse=parse_int,
            default=256,
            applies_to=("compute", "validate"),
            ignored_elsewhere=True,
            group=CONVOLUTION,
            help="channels of the convolution's output",
        ),
        Axis(
            name="halo_len",
            parse=parse_int,
            default=1,
            minimum=0,
            in_key="never",
            group=CONVOLUTION,
            applies_to=CONVOLUTION_BENCHMARKS,
            help="halo width N in pixels, for a kernel of 2 N + 1",
        ),
        Axis(
            name="kernel",
            parse=parse_dims,
            applies_to=CONVOLUTION_BENCHMARKS,
            group=CONVOLUTION,
            help="kernel size in pixels, in place of --halo-len",
        ),
        Axis(
            name="stride",
            parse=parse_dims,
            default=1,
            in_key="unless_default",
            group=CONVOLUTION,
            applies_to=CONVOLUTION_BENCHMARKS,
            help="convolution stride",
        ),
        Axis(
            name="dilation",
            parse=parse_dims,
            default=1,
            in_key="unless_default",
            group=CONVOLUTION,
            applies_to=CONVOLUTION_BENCHMARKS,
            help="convolution dilation",
        ),
        Axis(
            name="padding",
            parse=parse_dims,
            group=CONVOLUTION,
            applies_to=CONVOLUTION_BENCHMARKS,
            help="padding of every side in pixels",
            default_text="keeps the image size for odd kernels",
        ),
        Axis(
            name="padding_mode",
            choices=PADDING_MODES,
            default="zeros",
            in_key="unless_default",
            group=CONVOLUTION,
            applies_to=CONVOLUTION_BENCHMARKS,
            help="values of padded pixels",
        ),
        Axis(name="dtype", choices=tuple(DTYPES), default="float32", group=IMAGE, help="element type"),
        Axis(
            name="layout",
            choices=LAYOUTS,
            default="auto",
            applies_to=("exchange", "compute", "validate"),
            exclusive="layout",
            group=IMAGE,
            help="memory layout of the tiles",
        ),
        Axis(
            name="overlap",
            choices=OVERLAPS,
            default=("none", "split", "recompute"),
            several=True,
            applies_to=("compute", "validate"),
            group=DISTRIBUTION,
            help="overlap of exchange and convolution",
        ),
        Axis(
            name="backward",
            parse=parse_bool,
            default=False,
            choices=(False, True),
            action="flag",
            in_key="unless_default",
            applies_to=("exchange", "compute", NETWORK),
            group=CONVOLUTION,
            help="backward pass as well",
        ),
        Axis(
            name="fp16_allreduce",
            parse=parse_bool,
            default=False,
            choices=(False, True),
            action="flag",
            in_key="unless_default",
            applies_to=("compute",),
            ignored_elsewhere=True,
            group=CONVOLUTION,
            help="weight gradients summed in half precision, in compute --backward",
        ),
        Axis(
            name="fused_layers",
            parse=parse_int,
            default=1,
            minimum=1,
            in_key="unless_default",
            applies_to=("compute",),
            group=CONVOLUTION,
            help="convolutions in a row, computed by parallelize",
        ),
        Axis(
            name="halo_depth",
            parse=parse_halo_depth,
            default=1,
            metavar="N|auto",
            in_key="unless_default",
            applies_to=("compute",),
            group=DISTRIBUTION,
            help="convolutions of --fused-layers that one exchange serves, or auto",
        ),
        Axis(
            name="rounds",
            option="--iterations",
            aliases=("--iters",),
            parse=parse_int,
            default=MIN_ROUNDS,
            minimum=MIN_ROUNDS,
            applies_to=("validate",),
            group="rounds",
            help="rounds, each with new input",
        ),
    ),
)
# `--channels-last`: an alias of `--layout channels_last`.
CHANNELS_LAST = Option(
    name="layout",
    option="--channels-last",
    action="const",
    const="channels_last",
    exclusive="layout",
    group=IMAGE,
    help="short for --layout channels_last",
)


def cases(names: Sequence[str] = tuple(BENCHMARKS), **axes: Sequence[Any]) -> list[Case]:
    """Return the cases of the benchmarks: for each benchmark, every combination of values of its axes.

    Without `kernel` the kernel size follows from `halo_len`: 2 * halo_len + 1 pixels, padded so that the output has the
    size of the image. `validate` checks all its overlaps in one case.

    >>> [case.key for case in cases(["exchange"], image_size=[64], num_spatial_parts=[2], slice_method=["1x2"])]
    ['halo/exchange[batch_size=1,dtype=float32,image_size=64,in_channels=1,kernel=3,layout=auto,num_spatial_parts=2,\
padding=1,slice_method="1x2",transport=auto]']
    """
    for name in names:
        if name not in BENCHMARKS:
            raise TesseraError("unknown halo benchmark", got=name, allowed=BENCHMARKS)
    AXES.check_values(axes)
    AXES.check_applicable(axes, names)
    expanded = []
    for name in names:
        values = dict(axes)
        if name == "validate":
            values["overlap"] = [list(axes.get("overlap") or AXES["overlap"].default_values)]
        if name == "compute":
            values |= _check_stack(axes)
        expanded += [Case(feature="halo", name=name, params=params) for params in expand_params(name, values)]
    expanded.sort(key=lambda case: (str(case.params["transport"]), int(case.params["num_spatial_parts"])))
    return list({case.key: case for case in expanded}.values())


def _check_stack(axes: Mapping[str, Sequence[Any]]) -> dict[str, list[str]]:
    """Check the options of several convolutions in a row; return the axes that these options set (no overlap)."""
    depths, is_stack = axes.get("halo_depth", ()), max(axes.get("fused_layers", ()), default=1) > 1
    for depth in depths:
        if depth != "auto" and (not isinstance(depth, int) or depth < 1):
            raise TesseraError("invalid --halo-depth", got=depth, allowed="auto, or 1 or more")
    if any(depth != 1 for depth in depths) and not is_stack:
        raise TesseraError("--halo-depth requires --fused-layers of 2 or more")
    if is_stack and axes.get("overlap", ["none"]) != ["none"]:
        raise TesseraError("--fused-layers does not support --overlap", got=axes["overlap"], allowed="none")
    return {"overlap": ["none"]} if is_stack else {}


def expand_params(benchmark: str, values: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return the parameters of every combination of values; an impossible combination raises an error."""
    if values.get("kernel") and values.get("halo_len"):
        raise TesseraError("--kernel and --halo-len both set the kernel size", do="set only one of them")
    axes = AXES.select(benchmark)
    if benchmark == NETWORK:
        return [_check_network(axes.omit_defaults(params)) for params in axes.expand(values)]
    expanded = [axes.omit_defaults(_complete(params)) for params in axes.expand(values)]
    for params in expanded:
        problem = HaloProblem.of(params)
        problem.plan()
        problem.list_layers(params.get("fused_layers", 1))
    return expanded


def _check_network(params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a network case with the image size in its short form; refuse impossible splits."""
    image = NetworkProblem.of(params).image
    return params | {"image_size": _shorten(image) if len(image) == 2 else list(image)}


def _shorten(size: tuple[int, ...]) -> int | list[int]:
    return size[0] if len(set(size)) == 1 else list(size)


def _complete(params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters with kernel size and padding; a size is one number if all dims are equal.

    The size of a volume keeps its three numbers, because one number means an image.
    """
    image = parse_image_size(params["image_size"])
    dims = len(image)

    def parse(name: str, minimum: int) -> tuple[int, ...]:
        return parse_dim_sizes(params[name], name, minimum=minimum, dims=dims)

    params.setdefault("kernel", 2 * params["halo_len"] + 1)
    if "padding" not in params:
        sizes = zip(parse("kernel", 1), parse("dilation", 1), strict=True)
        params["padding"] = [(kernel - 1) * dilation // 2 for kernel, dilation in sizes]
    shortened = {name: _shorten(parse(name, 0)) for name in ("kernel", "stride", "dilation", "padding")}
    return params | shortened | {"image_size": _shorten(image) if dims == 2 else list(image)}


def launch(case: Case, base: LaunchConfig) -> LaunchConfig:
    """Return the launch of a case: one rank per tile, with the transport's launcher; a single process for one tile."""
    parts = int(case.params["num_spatial_parts"])
    spawn = "processes" if parts == 1 else get_spawn(str(case.params["transport"]))
    return replace(base, spawn=spawn, workers=parts)
