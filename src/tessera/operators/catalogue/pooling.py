"""Pooling over windows, over bins, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tessera.operators.catalogue.convolution import channels_last
from tessera.operators.draws import Draw, distinct, normal, spaced
from tessera.operators.operator import Call, Input, Operator, by_size
from tessera.operators.work import per_input

Sizes = Mapping[str, Mapping[str, Input]]
DTYPES = ("float32", "float64", "bfloat16", "float16")

# (n, channels, side) of series, images and volumes
SCALES = {
    1: ((1, 16, 256), (8, 64, 2048), (32, 128, 4096)),
    2: ((1, 4, 32), (4, 64, 56), (16, 64, 112)),
    3: ((1, 4, 10), (2, 64, 16), (8, 64, 32)),
}


def _distinct(values: int) -> Draw:
    """No two values of a plane equal or near, so that every maximum is one of them; small planes in 16 bits too."""
    row = distinct if values <= 4096 else spaced
    return Draw(f"(lambda shape: {row.expression})((*shape[:2], int(np.prod(shape[2:])))).reshape(shape)")


def _data(dims: int, draw: Draw = normal) -> Sizes:
    return by_size(lambda n, c, side: {"data": Input(shape=(n, c, *(side,) * dims), draw=draw)}, *SCALES[dims])


def _planes(dims: int, layout: str = "{}") -> Sizes:
    """Data for a maximum; `layout` is an expression around the draw."""

    def inputs(n: int, c: int, side: int) -> dict[str, Input]:
        draw = Draw(layout.format(_distinct(side**dims).expression))
        return {"data": Input(shape=(n, c, *(side,) * dims), draw=draw)}

    return by_size(inputs, *SCALES[dims])


def _window_flops(call: Call) -> float:
    """One FLOP per output and value under its window."""
    kernel, dims = call.attributes["kernel_size"], len(call.outputs[0]) - 2
    taps = kernel**dims if isinstance(kernel, int) else math.prod(kernel)
    return float(taps * math.prod(call.outputs[0]))


def _pool(name: str, function: str, reference: str, sizes: Sizes, *, fixed: str = "", **attributes: Any) -> Operator:
    """A pooling whose call names its attributes; `fixed` are arguments that torch alone needs."""
    arguments = ", ".join(["data", *(f"{key}={key}" for key in attributes)])
    return Operator(
        name=name,
        category="pooling",
        torch=f"F.{function}({arguments}{fixed})",
        reference=f"ref.{reference}({arguments})",
        sizes=sizes,
        attributes=attributes,
        flops=_window_flops if "kernel_size" in attributes else per_input("data"),
        backward_flops=1.0,
        # torch averages volumes in these only
        dtypes=("float32", "float64") if function in ("avg_pool3d", "lp_pool3d") else DTYPES,
    )


def _windows(dims: int) -> tuple[Operator, ...]:
    """The poolings that exist in every number of dims."""
    data, planes = _data(dims), _planes(dims)
    return (
        _pool(f"max_pool{dims}d", f"max_pool{dims}d", "max_pool", planes, kernel_size=2, stride=2),
        _pool(f"avg_pool{dims}d", f"avg_pool{dims}d", "avg_pool", data, kernel_size=2, stride=2),
        _pool(f"lp_pool{dims}d", f"lp_pool{dims}d", "lp_pool", data, norm_type=2.0, kernel_size=2, stride=2),
        _pool(f"adaptive_avg_pool{dims}d", f"adaptive_avg_pool{dims}d", "adaptive_avg_pool", data, output_size=7),
        _pool(f"adaptive_max_pool{dims}d", f"adaptive_max_pool{dims}d", "adaptive_max_pool", planes, output_size=7),
        _unpool(dims),
    )


def _corners(dims: int) -> Draw:
    """For each value one place of the 2-wide window that it came from, as max pooling returns them."""
    place = "0"
    for dim in range(2, 2 + dims):
        place = f"(({place}) * 2 * shape[{dim}] + 2 * np.indices(shape)[{dim}] + rng.integers(0, 2, shape))"
    return Draw(place)


def _unpool(dims: int) -> Operator:
    def inputs(n: int, c: int, side: int) -> dict[str, Input]:
        shape = (n, c, *(side // 2,) * dims)
        return {"data": Input(shape=shape), "index": Input(shape=shape, kind="int64", draw=_corners(dims))}

    return Operator(
        name=f"max_unpool{dims}d",
        category="pooling",
        torch=f"F.max_unpool{dims}d(data, index, kernel_size=2)",
        reference="ref.max_unpool(data, index, output_size)",
        sizes=by_size(inputs, *SCALES[dims]),
        attributes=lambda shapes: {"output_size": tuple(2 * n for n in shapes["data"][2:])},
        backward_flops=0.0,
        backward_bytes=1.0,
    )


# below one, and held exactly by every float, so that windows fall the same in all precisions
SIXTEENTHS = Draw("rng.integers(0, 16, shape) / 16")


def _fractional(dims: int, *sides: tuple[int, int, int]) -> Operator:
    """Windows at random places, which follow from given samples; from 3 m to 2 m places a step is exactly 3 / 2."""

    def inputs(n: int, c: int, outputs: int) -> dict[str, Input]:
        side = 3 * (outputs - 1) // 2 + 2
        samples = Input(shape=(n, c, dims), draw=SIXTEENTHS, grad=False)
        return {"data": Input(shape=(n, c, *(side,) * dims), draw=_distinct(side**dims)), "samples": samples}

    return Operator(
        name=f"fractional_max_pool{dims}d",
        category="pooling",
        torch=f"F.fractional_max_pool{dims}d(data, kernel_size, output_size, _random_samples=samples)",
        reference="ref.fractional_max_pool(data, samples, kernel_size, output_size)",
        sizes=by_size(inputs, *sides),
        attributes=lambda shapes: {
            "kernel_size": 2,
            "output_size": tuple(2 * (n - 2) // 3 + 1 for n in shapes["data"][2:]),
        },
        flops=_window_flops,
        backward_flops=1.0,
        dtypes=("float32", "float64"),
    )


OPERATORS = (
    *_windows(1),
    *_windows(2),
    *_windows(3),
    _pool("max_pool2d_stem", "max_pool2d", "max_pool", _planes(2), kernel_size=3, stride=2, padding=1),
    _pool("max_pool2d_dilated", "max_pool2d", "max_pool", _planes(2), kernel_size=3, stride=2, padding=1, dilation=2),
    _pool(
        "max_pool2d_channels_last",
        "max_pool2d",
        "max_pool",
        _planes(2, "np.moveaxis(np.ascontiguousarray(np.moveaxis({}, 1, -1)), -1, 1)"),
        kernel_size=3,
        stride=2,
        padding=1,
    ),
    _pool(
        "max_pool2d_with_indices",
        "max_pool2d",
        "max_pool_with_indices",
        _planes(2),
        fixed=", return_indices=True",
        kernel_size=3,
        stride=2,
        padding=1,
    ),
    _pool("avg_pool2d_3x3", "avg_pool2d", "avg_pool", _data(2), kernel_size=3, stride=1, padding=1),
    _pool(
        "avg_pool2d_without_padding",
        "avg_pool2d",
        "avg_pool",
        _data(2),
        kernel_size=3,
        stride=1,
        padding=1,
        count_include_pad=False,
    ),
    _pool("avg_pool2d_channels_last", "avg_pool2d", "avg_pool", _data(2, channels_last), kernel_size=2, stride=2),
    _pool("global_avg_pool2d", "adaptive_avg_pool2d", "adaptive_avg_pool", _data(2), output_size=1),
    _pool("global_max_pool2d", "adaptive_max_pool2d", "adaptive_max_pool", _planes(2), output_size=1),
    _fractional(2, (1, 4, 21), (4, 64, 37), (16, 64, 75)),
    _fractional(3, (1, 4, 7), (2, 64, 11), (8, 64, 21)),
)
