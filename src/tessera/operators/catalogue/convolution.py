"""Convolutions: one to three dims, transposed, depthwise, grouped."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from tessera.operators.draws import Draw, normal
from tessera.operators.operator import Call, Input, Operator, Shape, by_size
from tessera.operators.work import product

Sizes = Mapping[str, Mapping[str, Input]]

# (n, channels, width): one that overhead dominates, a layer of a ResNet, and a batch of them
SERIES = ((1, 16, 128), (4, 64, 1024), (16, 128, 4096))
IMAGES = ((1, 16, 28), (1, 64, 56), (8, 64, 56))
DEEP = ((1, 16, 14), (1, 256, 14), (8, 256, 28))
VOLUMES = ((1, 8, 8), (1, 32, 16), (2, 64, 24))


# normal values of (n, channels, *space) that lie in memory as (n, *space, channels)
channels_last = Draw("np.moveaxis(rng.standard_normal((shape[0], *shape[2:], shape[1])), -1, 1)")


def _inputs(data: Shape, weight: Shape, *, bias: int = 0, draw: Draw = normal) -> dict[str, Input]:
    """Data, a weight as small as a network's so that results are of size one, and a bias where there is one."""
    small = 1.0 / math.sqrt(math.prod(weight[1:]))
    found = {
        "data": Input(shape=data, draw=draw),
        "weight": Input(shape=weight, draw=Draw(f"{small} * {draw.expression}")),
    }
    return {**found, "bias": Input(shape=(bias,))} if bias else found


def _same_width(
    dims: int, kernel: int, *, groups: int = 1, depthwise: bool = False, bias: bool = False, draw: Draw = normal
) -> Callable[[int, int, int], dict[str, Input]]:
    """Inputs of a convolution with as many channels out as in, over data of equal sides."""

    def inputs(n: int, c: int, side: int) -> dict[str, Input]:
        weight = (c, 1 if depthwise else c // groups, *(kernel,) * dims)
        return _inputs((n, c, *(side,) * dims), weight, bias=c if bias else 0, draw=draw)

    return inputs


def _operator(
    name: str, function: str, reference: str, sizes: Sizes, depthwise: bool, given: Any, **how: Any
) -> Operator:
    """A convolution whose call lists its inputs, then its attributes; as many groups as channels where depthwise."""
    keys = [*given, *(["groups"] if depthwise else [])]
    arguments = ", ".join([*sizes["small"], *(f"{key}={key}" for key in keys)])
    return Operator(
        name=name,
        category="convolution",
        torch=f"{function}({arguments})",
        reference=f"{reference}({arguments})",
        sizes=sizes,
        attributes=(lambda shapes: {**given, "groups": shapes["data"][1]}) if depthwise else given,
        **how,
    )


def _conv(name: str, dims: int, sizes: Sizes, *, depthwise: bool = False, **attributes: Any) -> Operator:
    function = f"F.conv{dims}d"
    return _operator(name, function, "ref.convolution", sizes, depthwise, attributes, flops=product("weight"))


def _transposed_flops(call: Call) -> float:
    """Two FLOPs per input and element of the weight that spreads it; the weight is (in, out, *kernel)."""
    return 2.0 * math.prod(call.shapes["data"]) * math.prod(call.shapes["weight"][1:])


def _transposed(name: str, dims: int, sizes: Sizes, *, depthwise: bool = False, **attributes: Any) -> Operator:
    function = f"F.conv_transpose{dims}d"
    return _operator(
        name, function, "ref.transposed_convolution", sizes, depthwise, attributes, flops=_transposed_flops
    )


_SERIES = (
    _conv("conv1d", 1, by_size(_same_width(1, 3), *SERIES), stride=1, padding=1),
    _conv("conv1d_1x1", 1, by_size(_same_width(1, 1), *SERIES), stride=1, padding=0),
    _conv("conv1d_dilated", 1, by_size(_same_width(1, 3), *SERIES), padding=8, dilation=8),
    _conv("conv1d_depthwise", 1, by_size(_same_width(1, 31, depthwise=True), *SERIES), depthwise=True, padding=15),
    _conv(
        "conv1d_stem",
        1,
        by_size(lambda c, s: _inputs((1, 1, s), (c, 1, 10)), (16, 1024), (128, 16000), (512, 64000)),
        stride=5,
        padding=0,
    ),
)

_IMAGES = (
    _conv("conv2d", 2, by_size(_same_width(2, 3), *IMAGES), stride=1, padding=1),
    _conv("conv2d_bias", 2, by_size(_same_width(2, 3, bias=True), *IMAGES), stride=1, padding=1),
    _conv("conv2d_channels_last", 2, by_size(_same_width(2, 3, draw=channels_last), *IMAGES), stride=1, padding=1),
    _conv("conv2d_5x5", 2, by_size(_same_width(2, 5), *IMAGES), stride=1, padding=2),
    _conv("conv2d_strided", 2, by_size(_same_width(2, 3), *IMAGES), stride=2, padding=1),
    _conv("conv2d_dilated", 2, by_size(_same_width(2, 3), *IMAGES), padding=2, dilation=2),
    _conv("conv2d_grouped", 2, by_size(_same_width(2, 3, groups=8), *IMAGES), padding=1, groups=8),
    _conv("conv2d_depthwise", 2, by_size(_same_width(2, 3, depthwise=True), *IMAGES), depthwise=True, padding=1),
    _conv("conv2d_depthwise_7x7", 2, by_size(_same_width(2, 7, depthwise=True), *IMAGES), depthwise=True, padding=3),
    _conv(
        "conv2d_depthwise_channels_last",
        2,
        by_size(_same_width(2, 3, depthwise=True, draw=channels_last), *IMAGES),
        depthwise=True,
        padding=1,
    ),
    _conv("conv2d_deep", 2, by_size(_same_width(2, 3), *DEEP), stride=1, padding=1),
    _conv(
        "conv2d_1x1",
        2,
        by_size(lambda n, c, s: _inputs((n, c, s, s), (4 * c, c, 1, 1)), *IMAGES),
        stride=1,
        padding=0,
    ),
    _conv(
        "conv2d_1x1_strided",
        2,
        by_size(lambda n, c, s: _inputs((n, c, s, s), (2 * c, c, 1, 1)), *IMAGES),
        stride=2,
        padding=0,
    ),
    _conv(
        "conv2d_1x7",
        2,
        by_size(lambda n, c, s: _inputs((n, c, s, s), (c, c, 1, 7)), *IMAGES),
        stride=1,
        padding=(0, 3),
    ),
    _conv(
        "conv2d_stem",
        2,
        by_size(lambda n, c, s: _inputs((n, 3, s, s), (c, 3, 7, 7)), (1, 16, 32), (1, 64, 224), (16, 64, 224)),
        stride=2,
        padding=3,
    ),
    _conv(
        "conv2d_patches",
        2,
        by_size(
            lambda n, c, s: _inputs((n, 3, s, s), (c, 3, 16, 16), bias=c), (1, 16, 32), (1, 768, 224), (8, 768, 224)
        ),
        stride=16,
        padding=0,
    ),
)

_VOLUMES = (
    _conv("conv3d", 3, by_size(_same_width(3, 3), *VOLUMES), stride=1, padding=1),
    _conv("conv3d_1x1", 3, by_size(_same_width(3, 1), *VOLUMES), stride=1, padding=0),
    _conv("conv3d_strided", 3, by_size(_same_width(3, 3), *VOLUMES), stride=2, padding=1),
    _conv("conv3d_depthwise", 3, by_size(_same_width(3, 3, depthwise=True), *VOLUMES), depthwise=True, padding=1),
)

_TRANSPOSED = (
    _transposed("conv_transpose1d", 1, by_size(_same_width(1, 4), *SERIES), stride=2, padding=1),
    _transposed("conv_transpose2d", 2, by_size(_same_width(2, 4), *IMAGES), stride=2, padding=1),
    _transposed("conv_transpose2d_bias", 2, by_size(_same_width(2, 2, bias=True), *IMAGES), stride=2, padding=0),
    _transposed(
        "conv_transpose2d_output_padding",
        2,
        by_size(_same_width(2, 3), *IMAGES),
        stride=2,
        padding=1,
        output_padding=1,
    ),
    _transposed(
        "conv_transpose2d_depthwise",
        2,
        by_size(_same_width(2, 4, depthwise=True), *IMAGES),
        depthwise=True,
        stride=2,
        padding=1,
    ),
    _transposed("conv_transpose3d", 3, by_size(_same_width(3, 4), *VOLUMES), stride=2, padding=1),
)

_SEQUENCES = (
    Operator(
        name="conv_tbc",
        category="convolution",
        torch="torch.conv_tbc(data, weight, bias, pad)",
        reference="ref.time_convolution(data, weight, bias, pad)",
        sizes=by_size(
            lambda t, b, c: {
                "data": Input(shape=(t, b, c)),
                "weight": Input(shape=(3, c, c), draw=Draw("rng.standard_normal(shape) / (3 * shape[1]) ** 0.5")),
                "bias": Input(shape=(c,)),
            },
            (32, 2, 16),
            (256, 8, 128),
            (1024, 16, 256),
        ),
        attributes={"pad": 1},
        flops=lambda call: 2.0 * math.prod(call.outputs[0]) * math.prod(call.shapes["weight"][:2]),
    ),
)

OPERATORS = (*_SERIES, *_IMAGES, *_VOLUMES, *_TRANSPOSED, *_SEQUENCES)
