"""Axes (parameters) and cases of the core-grid benchmarks. torch is imported only when a case is checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from tessera.axes import Axes, Axis, group_options, parse_bool, parse_int, parse_size, shorten_pair
from tessera.coregrid.convolution import AUTO_LAYOUT, SEARCH_LAYOUT
from tessera.errors import TesseraError
from tessera.machine.catalogue import expand_machine_name
from tessera.results.record import Case

FEATURE = "conv"
CONV2D_BENCHMARK, NETWORK_BENCHMARK = "conv2d", "network"
BENCHMARKS = {
    CONV2D_BENCHMARK: "one convolution on a grid of cores: planned, executed, and compared with torch",
    NETWORK_BENCHMARK: "a whole network, planned layer by layer, with its predicted images/s",
}
SHARD_LAYOUT_CHOICES = (SEARCH_LAYOUT, AUTO_LAYOUT, "HEIGHT", "BLOCK", "WIDTH")
NUMBER_FORMATS = ("float32", "bfloat16", "bfloat8_b", "bfloat4_b")
NETWORK_DTYPE, NETWORK_FIDELITY = "bfloat8_b", "LoFi"  # settings of the published throughput
MATH_FIDELITIES = ("LoFi", "HiFi2", "HiFi3", "HiFi4")
GROUP_SHAPE, GROUP_PLACEMENT, GROUP_SETTINGS = "convolution", "placement", "settings"


def parse_size_or_pair(text: str) -> int | list[int]:
    """Parse a size: one number, or [height, width] if height and width differ.

    >>> parse_size_or_pair("3"), parse_size_or_pair("3x5")
    (3, [3, 5])
    """
    return shorten_pair(parse_size(text))


def parse_padding_text(text: str) -> int | list[int]:
    """Parse a padding: one number, height and width, or four sides (top, bottom, left, right).

    >>> parse_padding_text("1"), parse_padding_text("0,1,0,1")
    (1, [0, 1, 0, 1])
    """
    if "," not in text:
        return parse_size_or_pair(text)
    sides = [parse_int(part) for part in text.split(",")]
    if len(sides) != 4:
        raise TesseraError("invalid --padding", got=text, allowed="N, HxW, or TOP,BOTTOM,LEFT,RIGHT")
    return sides


# Axes of the convolution's shape: one number, or (window axes) one number or height and width.
_ShapeAxis = partial(Axis, parse=parse_int, applies_to=(CONV2D_BENCHMARK,), group=GROUP_SHAPE)
_WindowAxis = partial(_ShapeAxis, parse=parse_size_or_pair, metavar="N|HxW")


def _declare_setting_axis(name: str, default: bool | int | str, help: str, **options: Any) -> Axis:
    """Declare a benchmark axis for a setting of `conv2d`. The case key omits a setting with the default value."""
    fields: dict[str, Any] = {"default": default, "help": help, "in_key": "unless_default", "group": GROUP_SETTINGS}
    if isinstance(default, bool):
        fields |= {"parse": parse_bool, "action": "on_off"}
    elif isinstance(default, int):
        fields |= {"parse": parse_int}
    return Axis(name=name, **({"applies_to": (CONV2D_BENCHMARK,)} | fields | options))


AXES = Axes(
    FEATURE,
    (
        Axis(
            name="network",
            default="resnet50",
            default_text="none",
            metavar="MODEL",
            applies_to=(NETWORK_BENCHMARK,),
            group="tables and networks",
            help="network to plan as a whole, with its predicted images/s",
        ),
        _ShapeAxis(
            name="batch_size",
            default=1,
            help="images per batch",
            defaults={NETWORK_BENCHMARK: 16},
            applies_to=(),
            default_text="1; network: 16",
        ),
        _WindowAxis(
            name="image_size",
            default=56,
            help="height and width of the input",
            defaults={NETWORK_BENCHMARK: None},
            applies_to=(),
            default_text="56; network: the image size of the model",
        ),
        _ShapeAxis(name="in_channels", default=64, help="input channels"),
        _ShapeAxis(name="out_channels", default=64, help="output channels"),
        _WindowAxis(name="kernel", default=3, help="kernel size"),
        _WindowAxis(name="stride", default=1, help="convolution stride", in_key="unless_default"),
        _ShapeAxis(
            name="padding",
            parse=parse_padding_text,
            parse_list=lambda text: [parse_padding_text(text)],
            metavar="PADDING",
            help="padding: N, HxW, or TOP,BOTTOM,LEFT,RIGHT",
            default_text="preserves the image size for odd kernels",
        ),
        _WindowAxis(name="dilation", default=1, help="convolution dilation", in_key="unless_default"),
        _ShapeAxis(name="groups", default=1, help="channel groups", in_key="unless_default"),
        *group_options(
            GROUP_PLACEMENT,
            Axis(
                name="machine",
                parse=expand_machine_name,
                default="wormhole-n150",
                metavar="NAME|FILE",
                help="machine by name (`tessera list machines`) or TOML file",
            ),
            Axis(
                name="shard_layout",
                choices=SHARD_LAYOUT_CHOICES,
                default=SEARCH_LAYOUT,
                applies_to=(CONV2D_BENCHMARK,),
                help="shard layout (search is the fastest that fits, auto the chip's default rule)",
            ),
            Axis(
                name="dtype",
                choices=NUMBER_FORMATS,
                default="bfloat16",
                defaults={NETWORK_BENCHMARK: NETWORK_DTYPE},
                default_text="bfloat16; network: bfloat8_b",
                help="number format of activations and output",
            ),
        ),
        _declare_setting_axis(
            "weights_dtype",
            "bfloat16",
            "number format of weights and bias",
            choices=NUMBER_FORMATS,
            applies_to=(),
            defaults={NETWORK_BENCHMARK: NETWORK_DTYPE},
            default_text="bfloat16; network: bfloat8_b",
        ),
        _declare_setting_axis("bias", True, "bias added to the output"),
        _declare_setting_axis("activation", "", "activation function applied to the output, for example relu"),
        _declare_setting_axis(
            "grid", "", "grid of cores to use", default_text="all cores of the machine", metavar="ROWSxCOLS"
        ),
        _declare_setting_axis("input_channels_alignment", 32, "alignment of input channels: 8, 16 or 32"),
        _declare_setting_axis("deallocate_activation", False, "deallocation of the input after the halo exchange"),
        _declare_setting_axis(
            "reallocate_halo_output", False, "haloed input moved next to other buffers, to reduce fragmentation"
        ),
        _declare_setting_axis(
            "act_block_h_override", 0, "activation block height in sticks (pixels), a multiple of 32; 0: whole shard"
        ),
        _declare_setting_axis("act_block_w_div", 1, "divisor of the activation block width (WIDTH only)"),
        _declare_setting_axis(
            "transpose_shards", False, "sticks over grid columns, channels over grid rows; off: vice versa (BLOCK only)"
        ),
        _declare_setting_axis("output_layout", "tile", "memory layout of the output", choices=("tile", "row_major")),
        _declare_setting_axis("enable_act_double_buffer", False, "double buffer for activations"),
        _declare_setting_axis("enable_weights_double_buffer", False, "double buffer for weights"),
        _declare_setting_axis(
            "enable_split_reader", False, "two processors per core that gather activations, instead of one"
        ),
        _declare_setting_axis("full_inner_dim", False, "all kernel rows in one inner block (BLOCK only)"),
        _declare_setting_axis(
            "halo_mode",
            "span",
            "halo of a core (span is one range of sticks, exact only the sticks that windows read)",
            choices=("span", "exact"),
        ),
        _declare_setting_axis(
            "math_fidelity",
            "HiFi4",
            "precision of the matrix engine, from 1 pass (LoFi) to 4 passes (HiFi4)",
            choices=MATH_FIDELITIES,
            applies_to=(),
            defaults={NETWORK_BENCHMARK: NETWORK_FIDELITY},
            default_text="HiFi4; network: LoFi",
        ),
        _declare_setting_axis("math_approx_mode", True, "approximate activation functions"),
        _declare_setting_axis(
            "dst_full_sync_en", False, "all destination registers for one of matrix engine and packer, without overlap"
        ),
        _declare_setting_axis("fp32_dest_acc_en", False, "32-bit accumulation"),
        _declare_setting_axis("packer_l1_acc", False, "accumulation of partial sums in core memory by the packer"),
        _declare_setting_axis(
            "slice_axis", "", "image axis of slices in global memory", choices=("", "height", "width")
        ),
        _declare_setting_axis("num_slices", 0, "number of slices in global memory; 0: the fewest that fit"),
    ),
)


def cases(
    names: Sequence[str] = (CONV2D_BENCHMARK,),
    *,
    table: Sequence[str] = (),
    layers: Sequence[str] = (),
    **axes: Sequence[Any],
) -> list[Case]:
    """Return the cases of the named benchmarks: every combination of the axis values that apply to a benchmark.

    `table` names models whose convolutions give the shapes; `layers` selects some of their layers.

    >>> [case.key for case in cases(image_size=[14], in_channels=[256], out_channels=[256])]
    ['conv/conv2d[batch_size=1,dtype=bfloat16,image_size=14,in_channels=256,kernel=3,machine=wormhole-n150,\
out_channels=256,padding=1,shard_layout=search]']
    """
    expanded: list[Case] = []
    for name in names:
        if name not in BENCHMARKS:
            raise TesseraError("unknown core-grid benchmark", got=name, allowed=BENCHMARKS)
        AXES.check_values(axes)
        AXES.check_applicable(axes, [name])
        every = AXES.select(name).expand(axes)
        params = (
            _expand_networks(every) if name == NETWORK_BENCHMARK else _expand_convolutions(every, table, layers, axes)
        )
        expanded += [Case(feature=FEATURE, name=name, params=each) for each in params]
    return list({case.key: case for case in expanded}.values())


def _expand_networks(expanded: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the parameters of every network, without default settings."""
    axes = AXES.select(NETWORK_BENCHMARK)
    for params in expanded:
        kept = axes.omit_defaults(params)
        if kept.get("dtype") == NETWORK_DTYPE:
            del kept["dtype"]
        yield kept


def _expand_convolutions(
    expanded: Iterator[dict[str, Any]], tables: Sequence[str], layers: Sequence[str], axes: Mapping[str, Sequence[Any]]
) -> Iterator[dict[str, Any]]:
    """Yield the parameters of every convolution. Raises an error if a convolution is invalid."""
    from tessera.coregrid.problem import ConvProblem

    shape_axes = [
        axis.name for axis in AXES if axis.group == GROUP_SHAPE and axis.name not in ("batch_size", "image_size")
    ]
    if tables and (conflicts := [name for name in shape_axes if name in axes]):
        raise TesseraError(
            "shape parameters cannot be combined with `table`, which defines the shapes",
            got=", ".join(conflicts),
            do="omit these parameters, or omit `table`",
        )
    if layers and not tables:
        raise TesseraError("`layers` requires `table`", got=", ".join(layers), do="name a model with `table`")
    for params in expanded:
        for shape in _iter_table_shapes(tables, layers, params, "image_size" in axes) if tables else [{}]:
            full = {**params, **shape}
            full.setdefault("padding", _compute_same_padding(full["kernel"], full["dilation"]))
            case_params = AXES.omit_defaults(full)
            ConvProblem.of(case_params)
            yield case_params


def _iter_table_shapes(
    tables: Sequence[str], layers: Sequence[str], params: Mapping[str, Any], has_size: bool
) -> Iterator[dict[str, Any]]:
    """Yield the shape parameters of every convolution of the models `tables`, including the layer name."""
    from tessera.coregrid.networks.layers import build_table

    if has_size and not isinstance(params["image_size"], int):
        raise TesseraError("--table requires square images", got=params["image_size"], allowed="one number")
    missing = set(layers)
    for name in tables:
        for row in build_table(name, int(params["batch_size"]), params["image_size"] if has_size else None):
            if not layers or row.name in layers:
                missing.discard(row.name)
                conv = row.conv
                (top, bottom), (left, right) = conv.padding
                symmetric = top == bottom and left == right
                yield {
                    "layer": f"{name}:{row.name}",
                    "image_size": shorten_pair((conv.height, conv.width)),
                    "in_channels": conv.in_channels,
                    "out_channels": conv.out_channels,
                    "kernel": shorten_pair(conv.kernel),
                    "stride": shorten_pair(conv.stride),
                    "padding": shorten_pair((top, left)) if symmetric else [top, bottom, left, right],
                    "dilation": shorten_pair(conv.dilation),
                    "groups": conv.groups,
                }
    if missing:
        raise TesseraError(
            "the table has no such layer", got=", ".join(sorted(missing)), do="see `tessera conv --table MODEL --list`"
        )


def _compute_same_padding(kernel: Any, dilation: Any) -> int | list[int]:
    """Return the padding for which a convolution with an odd kernel and stride 1 preserves the image size."""
    pairs = ([value, value] if isinstance(value, int) else list(value) for value in (kernel, dilation))
    down, right = ((k - 1) * d // 2 for k, d in zip(*pairs, strict=True))
    return shorten_pair((down, right))
