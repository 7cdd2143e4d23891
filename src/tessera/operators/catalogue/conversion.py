"""Conversions: between dtypes, between memory layouts, to Python and NumPy, to and from quantised and complex numbers.

`to_X` converts the case's own dtype; `A_to_B` always the same two. Rounding to 16 bits is checked to the 16 bits'
precision, against the value that was rounded: that is what its gradient belongs to.
"""

from __future__ import annotations

from typing import Any

from tessera.operators.catalogue.elementwise import NO_GRADIENT, SAME_GRADIENT, WIDE
from tessera.operators.catalogue.layouts import Sizes, images, square
from tessera.operators.draws import Draw, booleans, cells, constant, half_zero, integers, uniform
from tessera.operators.operator import Input, Operator, by_size
from tessera.operators.work import nothing_moved, per_output

HUNDREDS = Draw("100 * rng.standard_normal(shape)")
MOSTLY_ZERO = Draw("rng.standard_normal(shape) * (rng.random(shape) < 0.05)")


def _conversion(name: str, torch: str, reference: str, sizes: Sizes | None = None, **rest: Any) -> Operator:
    settings: dict[str, Any] = {"backward_flops": 0.0, "backward_bytes": 1.0, **rest}
    return Operator(
        name=name, category="conversion", torch=torch, reference=reference, sizes=sizes or square(), **settings
    )


def _cast(start: str, end: str, draw: Draw) -> Operator:
    """From one dtype to another, neither of them the case's."""
    return _conversion(
        f"{start}_to_{end}",
        f"data.to(torch.{end})",
        f"data.astype(np.{end})",
        square(draw, start),
        **NO_GRADIENT,
    )


def _quantised(name: str, torch: str, reference: str, sizes: Sizes, **rest: Any) -> Operator:
    """From float32 to eight bits; the output is seen as float32 again."""
    return _conversion(
        name,
        torch,
        reference,
        sizes,
        flops=per_output(3),
        moved=lambda call: call.read["data"] + call.written[0] / 4,
        dtypes=("float32",),
        **NO_GRADIENT,
        **rest,
    )


def _to_whole(end: str, draw: Draw = HUNDREDS) -> Operator:
    """From the case's dtype to whole numbers or truth values."""
    return _conversion(f"to_{end}", f"data.to(torch.{end})", f"data.astype(np.{end})", square(draw), **NO_GRADIENT)


_COMPLEX = by_size(lambda n: {"data": Input(shape=(n, n), kind="complex")}, 64, 1024, 2048)
_FIRST_QUADRANT = by_size(
    lambda n: {"data": Input(shape=(n, n), kind="complex", draw=uniform(0.2, 2.0))}, 64, 1024, 2048
)
_ONE = by_size(lambda n: {"data": Input(shape=(n,))}, 1, 1, 1)
_LISTED = by_size(lambda n: {"data": Input(shape=(n, n))}, 16, 128, 512)
_LAST = by_size(lambda n, c, s: {"data": Input(shape=(n, s, s, c))}, (1, 16, 16), (8, 64, 56), (64, 64, 56))
_CHANNELS = by_size(
    lambda c, n: {
        "data": Input(shape=(c, n)),
        "scales": Input(shape=(c,), draw=Draw("2.0 ** rng.integers(-7, -3, shape)"), grad=False),
        "zero_points": Input(shape=(c,), kind="int64", draw=constant(0.0)),
    },
    (16, 256),
    (1024, 1024),
    (4096, 4096),
)
# values well between two roundings: they lie on the same side in every precision
_STEP = {"scale": 2.0**-5, "zero_point": 3}
NEAR_STEPS = cells(-90, 90, -0.4, 0.4, 2.0**-5)

OPERATORS = (
    # dtypes
    _conversion(
        "to_float64", "data.to(torch.float64)", "data.astype(np.float64)", dtypes=("float32", "bfloat16", "float16")
    ),
    _conversion(
        "to_bfloat16", "data.to(torch.bfloat16)", "ref.identity(data)", tolerance=25.0, dtypes=("float32", "float16")
    ),
    _conversion(
        "to_float16",
        "data.to(torch.float16)",
        "ref.identity(data)",
        checked="out[0].astype(np.float16)",
        dtypes=("float32", "bfloat16"),
    ),
    _conversion(
        "to_complex64", "data.to(torch.complex64)", "ref.identity(data).astype(np.complex128)", dtypes=("float32",)
    ),
    _to_whole("int64"),
    _to_whole("int32"),
    _to_whole("int8", uniform(-100.0, 100.0)),
    _to_whole("uint8", uniform(0.0, 255.0)),
    _to_whole("bool", half_zero),
    _cast("float64", "float32", HUNDREDS),
    _cast("float16", "float32", HUNDREDS),
    _cast("int64", "float32", integers(1000, low=-1000)),
    _cast("int32", "float32", integers(1000, low=-1000)),
    _cast("int8", "float32", integers(128, low=-128)),
    _cast("uint8", "float32", integers(256)),
    _cast("bool", "float32", booleans),
    _cast("bool", "int64", booleans),
    _cast("int64", "int32", integers(2**31)),
    _cast("int64", "bool", integers(2)),
    # layouts
    _conversion(
        "to_channels_last",
        "data.contiguous(memory_format=torch.channels_last)",
        "np.moveaxis(np.moveaxis(data, 1, -1).copy(), -1, 1)",
        images(),
        **SAME_GRADIENT,
    ),
    _conversion(
        "from_channels_last",
        "data.permute(0, 3, 1, 2).contiguous()",
        "np.ascontiguousarray(np.moveaxis(data, -1, 1))",
        _LAST,
        **SAME_GRADIENT,
    ),
    _conversion("contiguous", "data[:, ::2].contiguous()", "np.ascontiguousarray(data[:, ::2])"),
    _conversion("to_same", "data.to(data.dtype)", "np.asarray(data)", moved=nothing_moved),
    _conversion(
        "to_sparse",
        "data.to_sparse()",
        "ref.identity(data)",
        square(MOSTLY_ZERO),
        moved=lambda call: float(call.read["data"]),
        **NO_GRADIENT,
    ),
    # Python and NumPy
    _conversion(
        "to_numpy",
        "data.numpy()",
        "np.asarray(data)",
        moved=nothing_moved,
        dtypes=("float32", "float64", "float16"),
        **NO_GRADIENT,
    ),
    _conversion("tolist", "data.tolist()", "data.tolist()", _LISTED, checked="np.array(out)", **NO_GRADIENT),
    _conversion("item", "data.item()", "data.item()", _ONE, **NO_GRADIENT),
    _conversion(
        "numpy_round_trip",
        "torch.from_numpy(data.numpy())",
        "np.asarray(data)",
        moved=nothing_moved,
        dtypes=("float32", "float64", "float16"),
        **NO_GRADIENT,
    ),
    _conversion("detach", "data.detach()", "np.asarray(data)", moved=nothing_moved, **NO_GRADIENT),
    # complex numbers
    _conversion("real", "torch.real(data)", "np.real(data)", _COMPLEX, moved=nothing_moved, **WIDE),
    _conversion("imag", "torch.imag(data)", "np.imag(data)", _COMPLEX, moved=nothing_moved, **WIDE),
    _conversion("conj", "torch.conj(data)", "ref.conj(data)", _COMPLEX, moved=nothing_moved, **WIDE),
    _conversion("conj_physical", "torch.conj_physical(data)", "np.conj(data)", _COMPLEX, flops=per_output(), **WIDE),
    _conversion(
        "angle", "torch.angle(data)", "np.angle(data)", _FIRST_QUADRANT, flops=per_output(), backward_flops=4.0, **WIDE
    ),
    # quantised numbers
    _quantised(
        "quantize_per_tensor",
        "torch.quantize_per_tensor(data, scale, zero_point, torch.qint8)",
        "ref.quantised(data, scale, zero_point)",
        square(NEAR_STEPS),
        attributes=_STEP,
    ),
    _quantised(
        "quantize_per_channel",
        "torch.quantize_per_channel(data, scales, zero_points, 0, torch.qint8)",
        "ref.quantised(data, scales[:, None], zero_points[:, None])",
        _CHANNELS,
    ),
    _conversion(
        "quantize_dequantize",
        "torch.quantize_per_tensor(data, scale, zero_point, torch.qint8).dequantize()",
        "ref.quantised(data, scale, zero_point)",
        square(NEAR_STEPS),
        attributes=_STEP,
        flops=per_output(5),
        dtypes=("float32",),
        **NO_GRADIENT,
    ),
    _conversion(
        "fake_quantize_per_tensor_affine",
        "torch.fake_quantize_per_tensor_affine(data, scale, zero_point, -128, 127)",
        "ref.quantised(data, scale, zero_point)",
        square(NEAR_STEPS),
        attributes=_STEP,
        flops=per_output(5),
        dtypes=("float32",),
        **NO_GRADIENT,
    ),
    _conversion(
        "fake_quantize_per_channel_affine",
        "torch.fake_quantize_per_channel_affine(data, scales, zero_points.int(), 0, -128, 127)",
        "ref.quantised(data, scales[:, None], zero_points[:, None])",
        _CHANNELS,
        flops=per_output(5),
        dtypes=("float32",),
        **NO_GRADIENT,
    ),
)
