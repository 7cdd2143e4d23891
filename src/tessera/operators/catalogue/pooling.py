"""Pooling over windows, adaptive pooling over bins, and unpooling."""

from __future__ import annotations

import math
from typing import Any

from tessera.operators.catalogue.convolution import channels_last_values
from tessera.operators.catalogue.families import WIDE_DTYPES, Sizes, define_family
from tessera.operators.draws import Draw, distinct_values, normal, spaced_values
from tessera.operators.operator import Input, Operator, OperatorCall, make_sizes

_define_pooling = define_family("pooling")

# number of spatial dims -> (n, channels, side) of each size
SCALES_BY_DIMS = {
    1: ((1, 16, 256), (8, 64, 2048), (32, 128, 4096)),
    2: ((1, 4, 32), (4, 64, 56), (16, 64, 112)),
    3: ((1, 4, 10), (2, 64, 16), (8, 64, 32)),
}


def _draw_distinct(values: int) -> Draw:
    """Return a draw of planes of `values` elements without equal or close values, so that every maximum is unique.

    Values of planes of up to 4096 elements are distinct in 16-bit dtypes too.
    """
    row = distinct_values if values <= 4096 else spaced_values
    return Draw(f"(lambda shape: {row.expression})((*shape[:2], int(np.prod(shape[2:])))).reshape(shape)")


def _make_data(dims: int, draw: Draw = normal) -> Sizes:
    return make_sizes(lambda n, c, side: {"data": Input((n, c, *(side,) * dims), draw)}, *SCALES_BY_DIMS[dims])


def _make_planes(dims: int, layout: str = "{}") -> Sizes:
    """Make data with unique maxima; `layout` is the source of a function applied to it, with `{}` for the data."""

    def build_inputs(n: int, c: int, side: int) -> dict[str, Input]:
        draw = Draw(layout.format(_draw_distinct(side**dims).expression))
        return {"data": Input((n, c, *(side,) * dims), draw)}

    return make_sizes(build_inputs, *SCALES_BY_DIMS[dims])


def _count_window_flops(call: OperatorCall) -> float:
    """Count one FLOP for every element of every window."""
    kernel, dims = call.attributes["kernel_size"], len(call.outputs[0]) - 2
    taps = kernel**dims if isinstance(kernel, int) else math.prod(kernel)
    return float(taps * math.prod(call.outputs[0]))


def _define_pool(
    name: str, sizes: Sizes, *, function: str = "", reference: str = "", fixed: str = "", **attributes: Any
) -> Operator:
    """Define a pooling whose attributes are keyword arguments; `fixed` is the source of arguments for torch only.

    `function` is its name in torch (default: `name`), such as `max_pool2d`; by default, the reference is `max_pool`.
    """
    function = function or name
    arguments = ", ".join(["data", *(f"{key}={key}" for key in attributes)])
    costs = {"flops": _count_window_flops} if "kernel_size" in attributes else {"flops": 1, "flops_of": "data"}
    return _define_pooling(
        name,
        f"F.{function}({arguments}{fixed})",
        f"ref.{reference or function[:-2]}({arguments})",
        sizes,
        attributes=attributes,
        backward_flops=1.0,
        **costs,
        # torch supports average pooling of volumes only in these dtypes
        **(WIDE_DTYPES if function in ("avg_pool3d", "lp_pool3d") else {}),
    )


def _define_windows(dims: int) -> tuple[Operator, ...]:
    """Define the pooling operators that exist in 1D, 2D and 3D, for `dims` dims."""
    data, planes = _make_data(dims), _make_planes(dims)
    return (
        _define_pool(f"max_pool{dims}d", planes, kernel_size=2, stride=2),
        _define_pool(f"avg_pool{dims}d", data, kernel_size=2, stride=2),
        _define_pool(f"lp_pool{dims}d", data, norm_type=2.0, kernel_size=2, stride=2),
        _define_pool(f"adaptive_avg_pool{dims}d", data, output_size=7),
        _define_pool(f"adaptive_max_pool{dims}d", planes, output_size=7),
        _define_unpool(dims),
    )


def _draw_corners(dims: int) -> Draw:
    """Return a draw of indices as max pooling with windows of side 2 returns them: one position per window."""
    place = "0"
    for dim in range(2, 2 + dims):
        place = f"(({place}) * 2 * shape[{dim}] + 2 * np.indices(shape)[{dim}] + rng.integers(0, 2, shape))"
    return Draw(place)


def _define_unpool(dims: int) -> Operator:
    def build_inputs(n: int, c: int, side: int) -> dict[str, Input]:
        shape = (n, c, *(side // 2,) * dims)
        return {"data": Input(shape), "index": Input(shape, _draw_corners(dims), "int64")}

    return _define_pooling(
        f"max_unpool{dims}d",
        f"F.max_unpool{dims}d(data, index, kernel_size=2)",
        "ref.max_unpool",
        make_sizes(build_inputs, *SCALES_BY_DIMS[dims]),
        attributes=lambda shapes: {"output_size": tuple(2 * n for n in shapes["data"][2:])},
        backward_flops=0.0,
        backward_bytes=1.0,
    )


# random samples in [0, 1) that are exact in every dtype, so that windows have the same position in all precisions
SIXTEENTH_VALUES = Draw("rng.integers(0, 16, shape) / 16")


def _define_fractional(dims: int, *sides: tuple[int, int, int]) -> Operator:
    """Define fractional max pooling: random samples shift the windows, which are 1.5 elements apart before rounding."""

    def build_inputs(n: int, c: int, outputs: int) -> dict[str, Input]:
        side = 3 * (outputs - 1) // 2 + 2
        samples = Input((n, c, dims), SIXTEENTH_VALUES, grad=False)
        return {"data": Input((n, c, *(side,) * dims), _draw_distinct(side**dims)), "samples": samples}

    return _define_pooling(
        f"fractional_max_pool{dims}d",
        f"F.fractional_max_pool{dims}d(data, kernel_size, output_size, _random_samples=samples)",
        "ref.fractional_max_pool",
        make_sizes(build_inputs, *sides),
        attributes=lambda shapes: {
            "kernel_size": 2,
            "output_size": tuple(2 * (n - 2) // 3 + 1 for n in shapes["data"][2:]),
        },
        flops=_count_window_flops,
        backward_flops=1.0,
        **WIDE_DTYPES,
    )


OPERATORS = (
    *_define_windows(1),
    *_define_windows(2),
    *_define_windows(3),
    *(
        _define_pool(f"max_pool2d_{name}", sizes, function="max_pool2d", kernel_size=3, stride=2, padding=1, **more)
        for name, sizes, more in (
            ("stem", _make_planes(2), {}),
            ("dilated", _make_planes(2), {"dilation": 2}),
            ("channels_last", _make_planes(2, "np.moveaxis(np.ascontiguousarray(np.moveaxis({}, 1, -1)), -1, 1)"), {}),
            ("with_indices", _make_planes(2), {"reference": "max_pool_with_indices", "fixed": ", return_indices=True"}),
        )
    ),
    _define_pool("avg_pool2d_3x3", _make_data(2), function="avg_pool2d", kernel_size=3, stride=1, padding=1),
    _define_pool(
        "avg_pool2d_without_padding",
        _make_data(2),
        function="avg_pool2d",
        kernel_size=3,
        stride=1,
        padding=1,
        count_include_pad=False,
    ),
    _define_pool(
        "avg_pool2d_channels_last", _make_data(2, channels_last_values), function="avg_pool2d", kernel_size=2, stride=2
    ),
    _define_pool("global_avg_pool2d", _make_data(2), function="adaptive_avg_pool2d", output_size=1),
    _define_pool("global_max_pool2d", _make_planes(2), function="adaptive_max_pool2d", output_size=1),
    _define_fractional(2, (1, 4, 21), (4, 64, 37), (16, 64, 75)),
    _define_fractional(3, (1, 4, 7), (2, 64, 11), (8, 64, 21)),
)
