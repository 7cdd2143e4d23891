"""Convolutions: 1D to 3D, transposed, depthwise, grouped."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

from tessera.operators.catalogue.families import Sizes, define_family
from tessera.operators.draws import Draw, normal
from tessera.operators.operator import Input, Operator, OperatorCall, Shape, count_convolution_flops, make_sizes

# (n, channels, side): a small size dominated by call overhead, a ResNet layer, and a batch of that layer
Scales = tuple[tuple[int, int, int], ...]
SERIES_SCALES: Scales = ((1, 16, 128), (4, 64, 1024), (16, 128, 4096))
IMAGE_SCALES: Scales = ((1, 16, 28), (1, 64, 56), (8, 64, 56))
DEEP_IMAGE_SCALES: Scales = ((1, 16, 14), (1, 256, 14), (8, 256, 28))
VOLUME_SCALES: Scales = ((1, 8, 8), (1, 32, 16), (2, 64, 24))
SCALES_BY_DIMS = {1: SERIES_SCALES, 2: IMAGE_SCALES, 3: VOLUME_SCALES}

# normal values of shape (n, channels, *space) in channels-last memory layout
channels_last_values = Draw("np.moveaxis(rng.standard_normal((shape[0], *shape[2:], shape[1])), -1, 1)")


def _make_inputs(data: Shape, weight: Shape, *, bias: int = 0, draw: Draw = normal) -> dict[str, Input]:
    """Make the inputs of a convolution: data, weight, and a bias of length `bias` if not 0.

    The weight is scaled so that outputs have magnitude one.
    """
    small = 1.0 / math.sqrt(math.prod(weight[1:]))
    inputs = {"data": Input(data, draw), "weight": Input(weight, Draw(f"{small} * {draw.expression}"))}
    return {**inputs, "bias": Input((bias,))} if bias else inputs


def _count_transposed_flops(call: OperatorCall) -> float:
    """Count two FLOPs per input element and weight of its channel; the weight has the shape (in, out, *kernel)."""
    return 2.0 * math.prod(call.shapes["data"]) * math.prod(call.shapes["weight"][1:])


_define_convolution = define_family("convolution")


def _define_conv(
    name: str,
    dims: int,
    kernel: int | Sizes,
    *,
    scales: Scales | None = None,
    transposed: bool = False,
    depthwise: bool = False,
    bias: bool = False,
    draw: Draw = normal,
    **attributes: Any,
) -> Operator:
    """Define a convolution, called with its inputs and then its attributes; with `depthwise`, one group per channel.

    `kernel` is the side of the kernel, for equal input and output channels, or the inputs of each size. `scales` are
    (n, channels, side).
    """

    def build_inputs(n: int, c: int, side: int) -> dict[str, Input]:
        assert isinstance(kernel, int)
        weight = (c, 1 if depthwise else c // attributes.get("groups", 1), *(kernel,) * dims)
        return _make_inputs((n, c, *(side,) * dims), weight, bias=c if bias else 0, draw=draw)

    return _define_convolution(
        name,
        f"F.conv{'_transpose' if transposed else ''}{dims}d",
        f"ref.{'transposed_' if transposed else ''}convolution",
        make_sizes(build_inputs, *(scales or SCALES_BY_DIMS[dims])) if isinstance(kernel, int) else kernel,
        keywords=True,
        attributes=(lambda shapes: {**attributes, "groups": shapes["data"][1]}) if depthwise else attributes,
        flops=_count_transposed_flops if transposed else count_convolution_flops,
    )


_define_transposed = partial(_define_conv, transposed=True)

_CONV1D_OPERATORS = (
    _define_conv("conv1d", 1, 3, stride=1, padding=1),
    _define_conv("conv1d_1x1", 1, 1, stride=1, padding=0),
    _define_conv("conv1d_dilated", 1, 3, padding=8, dilation=8),
    # torch 2.13 never returns from this convolution in float16 on CPUs with AVX512-FP16
    replace(
        _define_conv("conv1d_depthwise", 1, 31, depthwise=True, padding=15), dtypes=("float32", "float64", "bfloat16")
    ),
    _define_conv(
        "conv1d_stem",
        1,
        make_sizes(lambda c, s: _make_inputs((1, 1, s), (c, 1, 10)), (16, 1024), (128, 16000), (512, 64000)),
        stride=5,
        padding=0,
    ),
)

_CONV2D_OPERATORS = (
    _define_conv("conv2d", 2, 3, stride=1, padding=1),
    _define_conv("conv2d_bias", 2, 3, bias=True, stride=1, padding=1),
    _define_conv("conv2d_channels_last", 2, 3, draw=channels_last_values, stride=1, padding=1),
    _define_conv("conv2d_5x5", 2, 5, stride=1, padding=2),
    _define_conv("conv2d_strided", 2, 3, stride=2, padding=1),
    _define_conv("conv2d_dilated", 2, 3, padding=2, dilation=2),
    _define_conv("conv2d_grouped", 2, 3, padding=1, groups=8),
    _define_conv("conv2d_depthwise", 2, 3, depthwise=True, padding=1),
    _define_conv("conv2d_depthwise_7x7", 2, 7, depthwise=True, padding=3),
    _define_conv("conv2d_depthwise_channels_last", 2, 3, depthwise=True, draw=channels_last_values, padding=1),
    _define_conv("conv2d_deep", 2, 3, scales=DEEP_IMAGE_SCALES, stride=1, padding=1),
    *(
        _define_conv(name, 2, make_sizes(build_inputs, *IMAGE_SCALES), stride=stride, padding=padding)
        for name, build_inputs, stride, padding in (
            ("conv2d_1x1", lambda n, c, s: _make_inputs((n, c, s, s), (4 * c, c, 1, 1)), 1, 0),
            ("conv2d_1x1_strided", lambda n, c, s: _make_inputs((n, c, s, s), (2 * c, c, 1, 1)), 2, 0),
            ("conv2d_1x7", lambda n, c, s: _make_inputs((n, c, s, s), (c, c, 1, 7)), 1, (0, 3)),
        )
    ),
    _define_conv(
        "conv2d_stem",
        2,
        make_sizes(lambda n, c, s: _make_inputs((n, 3, s, s), (c, 3, 7, 7)), (1, 16, 32), (1, 64, 224), (16, 64, 224)),
        stride=2,
        padding=3,
    ),
    _define_conv(
        "conv2d_patches",
        2,
        make_sizes(
            lambda n, c, s: _make_inputs((n, 3, s, s), (c, 3, 16, 16), bias=c),
            (1, 16, 32),
            (1, 768, 224),
            (8, 768, 224),
        ),
        stride=16,
        padding=0,
    ),
)

_CONV3D_OPERATORS = (
    _define_conv("conv3d", 3, 3, stride=1, padding=1),
    _define_conv("conv3d_1x1", 3, 1, stride=1, padding=0),
    _define_conv("conv3d_strided", 3, 3, stride=2, padding=1),
    _define_conv("conv3d_depthwise", 3, 3, depthwise=True, padding=1),
)

_TRANSPOSED_OPERATORS = (
    _define_transposed("conv_transpose1d", 1, 4, stride=2, padding=1),
    _define_transposed("conv_transpose2d", 2, 4, stride=2, padding=1),
    _define_transposed("conv_transpose2d_bias", 2, 2, bias=True, stride=2, padding=0),
    _define_transposed("conv_transpose2d_output_padding", 2, 3, stride=2, padding=1, output_padding=1),
    _define_transposed("conv_transpose2d_depthwise", 2, 4, depthwise=True, stride=2, padding=1),
    _define_transposed("conv_transpose3d", 3, 4, stride=2, padding=1),
)

_SEQUENCE_OPERATORS = (
    _define_convolution(
        "conv_tbc",
        reference="ref.time_convolution",
        sizes=make_sizes(
            lambda t, b, c: {
                "data": Input((t, b, c)),
                "weight": Input((3, c, c), Draw("rng.standard_normal(shape) / (3 * shape[1]) ** 0.5")),
                "bias": Input((c,)),
            },
            (32, 2, 16),
            (256, 8, 128),
            (1024, 16, 256),
        ),
        attributes={"pad": 1},
        flops=lambda call: 2.0 * math.prod(call.outputs[0]) * math.prod(call.shapes["weight"][:2]),
    ),
)

OPERATORS = (*_CONV1D_OPERATORS, *_CONV2D_OPERATORS, *_CONV3D_OPERATORS, *_TRANSPOSED_OPERATORS, *_SEQUENCE_OPERATORS)
