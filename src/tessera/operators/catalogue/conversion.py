"""Conversions: between dtypes, between memory layouts, to Python and NumPy, to and from quantised and complex values.

`to_X` converts from the case's dtype, `A_to_B` between two fixed dtypes. A conversion to 16 bits
is compared with the unrounded value, with the tolerance of the 16-bit dtype.
"""

from __future__ import annotations

from functools import partial

from tessera.operators.catalogue.families import (
    NO_GRADIENT,
    SAME_GRADIENT,
    WIDE_DTYPES,
    define_family,
    make_images,
    make_square,
)
from tessera.operators.draws import Draw, between_multiples, booleans, constant, half_zero, integers, uniform
from tessera.operators.operator import Input, Operator, count_no_bytes, make_sizes

WIDE_NORMAL_VALUES = Draw("100 * rng.standard_normal(shape)")
MOSTLY_ZERO_VALUES = Draw("rng.standard_normal(shape) * (rng.random(shape) < 0.05)")


_define_conversion = define_family("conversion", backward_flops=0.0, backward_bytes=1.0)

_define_view = partial(_define_conversion, moved=count_no_bytes)


def _define_cast(start: str, end: str, draw: Draw) -> Operator:
    """Define a conversion from dtype `start` to dtype `end`, independent of the case's dtype."""
    return _define_conversion(
        f"{start}_to_{end}", f"data.to(torch.{end})", f"data.astype(np.{end})", make_square(draw, start), **NO_GRADIENT
    )


# a quantisation from float32 to eight bits; the output is converted back to float32 for the check
_define_quantisation = partial(
    _define_conversion,
    flops=3,
    moved=lambda call: call.read["data"] + call.written[0] / 4,
    dtypes=("float32",),
    **NO_GRADIENT,
)
# a quantisation that returns float32
_define_round_trip = partial(_define_conversion, flops=5, dtypes=("float32",), **NO_GRADIENT)


def _define_cast_to_integer(end: str, draw: Draw = WIDE_NORMAL_VALUES) -> Operator:
    """Define a conversion from the case's dtype to integers or booleans."""
    return _define_conversion(
        f"to_{end}", f"data.to(torch.{end})", f"data.astype(np.{end})", make_square(draw), **NO_GRADIENT
    )


_COMPLEX_INPUTS = make_sizes(lambda n: {"data": Input((n, n), kind="complex")}, 64, 1024, 2048)
_FIRST_QUADRANT_INPUTS = make_sizes(lambda n: {"data": Input((n, n), uniform(0.2, 2.0), "complex")}, 64, 1024, 2048)
_ONE_ELEMENT_INPUTS = make_sizes(lambda n: {"data": Input((n,))}, 1, 1, 1)
_SMALL_MATRIX_INPUTS = make_sizes(lambda n: {"data": Input((n, n))}, 16, 128, 512)
_CHANNELS_LAST_INPUTS = make_sizes(
    lambda n, c, s: {"data": Input((n, s, s, c))}, (1, 16, 16), (8, 64, 56), (64, 64, 56)
)
_PER_CHANNEL_INPUTS = make_sizes(
    lambda c, n: {
        "data": Input((c, n)),
        "scales": Input((c,), Draw("2.0 ** rng.integers(-7, -3, shape)"), grad=False),
        "zero_points": Input((c,), constant(0.0), "int64"),
    },
    (16, 256),
    (1024, 1024),
    (4096, 4096),
)
# values near a quantisation step, far from ties: they round to the same step in every precision
_QUANTISATION_STEP = {"scale": 2.0**-5, "zero_point": 3}
NEAR_STEP_VALUES = between_multiples(-90, 90, -0.4, 0.4, 2.0**-5)

OPERATORS = (
    # dtypes
    _define_conversion(
        "to_float64", "data.to(torch.float64)", "data.astype(np.float64)", dtypes=("float32", "bfloat16", "float16")
    ),
    _define_conversion(
        "to_bfloat16", "data.to(torch.bfloat16)", "ref.identity", tolerance=25.0, dtypes=("float32", "float16")
    ),
    _define_conversion(
        "to_float16",
        "data.to(torch.float16)",
        "ref.identity",
        checked="out[0].astype(np.float16)",
        dtypes=("float32", "bfloat16"),
    ),
    _define_conversion(
        "to_complex64", "data.to(torch.complex64)", "ref.identity(data).astype(np.complex128)", dtypes=("float32",)
    ),
    _define_cast_to_integer("int64"),
    _define_cast_to_integer("int32"),
    _define_cast_to_integer("int8", uniform(-100.0, 100.0)),
    _define_cast_to_integer("uint8", uniform(0.0, 255.0)),
    _define_cast_to_integer("bool", half_zero),
    _define_cast("float64", "float32", WIDE_NORMAL_VALUES),
    _define_cast("float16", "float32", WIDE_NORMAL_VALUES),
    _define_cast("int64", "float32", integers(1000, low=-1000)),
    _define_cast("int32", "float32", integers(1000, low=-1000)),
    _define_cast("int8", "float32", integers(128, low=-128)),
    _define_cast("uint8", "float32", integers(256)),
    _define_cast("bool", "float32", booleans),
    _define_cast("bool", "int64", booleans),
    _define_cast("int64", "int32", integers(2**31)),
    _define_cast("int64", "bool", integers(2)),
    # memory layouts
    _define_conversion(
        "to_channels_last",
        "data.contiguous(memory_format=torch.channels_last)",
        "np.moveaxis(np.moveaxis(data, 1, -1).copy(), -1, 1)",
        make_images(),
        **SAME_GRADIENT,
    ),
    _define_conversion(
        "from_channels_last",
        "data.permute(0, 3, 1, 2).contiguous()",
        "np.ascontiguousarray(np.moveaxis(data, -1, 1))",
        _CHANNELS_LAST_INPUTS,
        **SAME_GRADIENT,
    ),
    _define_conversion("contiguous", "data[:, ::2].contiguous()", "np.ascontiguousarray(data[:, ::2])"),
    _define_view("to_same", "data.to(data.dtype)", "np.asarray"),
    _define_conversion(
        "to_sparse",
        "data.to_sparse()",
        "ref.identity",
        make_square(MOSTLY_ZERO_VALUES),
        moved=lambda call: float(call.read["data"]),
        **NO_GRADIENT,
    ),
    # Python and NumPy
    _define_view("to_numpy", "data.numpy()", "np.asarray", dtypes=("float32", "float64", "float16"), **NO_GRADIENT),
    _define_conversion(
        "tolist", "data.tolist()", "data.tolist()", _SMALL_MATRIX_INPUTS, checked="np.array(out)", **NO_GRADIENT
    ),
    _define_conversion("item", "data.item()", "data.item()", _ONE_ELEMENT_INPUTS, **NO_GRADIENT),
    _define_view(
        "numpy_round_trip",
        "torch.from_numpy(data.numpy())",
        "np.asarray",
        dtypes=("float32", "float64", "float16"),
        **NO_GRADIENT,
    ),
    _define_view("detach", "data.detach()", "np.asarray", **NO_GRADIENT),
    # complex numbers
    _define_view("real", sizes=_COMPLEX_INPUTS, **WIDE_DTYPES),
    _define_view("imag", sizes=_COMPLEX_INPUTS, **WIDE_DTYPES),
    _define_view("conj", reference="ref.conj", sizes=_COMPLEX_INPUTS, **WIDE_DTYPES),
    _define_conversion("conj_physical", reference="np.conj", sizes=_COMPLEX_INPUTS, flops=1, **WIDE_DTYPES),
    _define_conversion("angle", sizes=_FIRST_QUADRANT_INPUTS, flops=1, backward_flops=4.0, **WIDE_DTYPES),
    # quantised numbers
    _define_quantisation(
        "quantize_per_tensor",
        "torch.quantize_per_tensor(data, scale, zero_point, torch.qint8)",
        "ref.quantise",
        make_square(NEAR_STEP_VALUES),
        attributes=_QUANTISATION_STEP,
    ),
    _define_quantisation(
        "quantize_per_channel",
        "torch.quantize_per_channel(data, scales, zero_points, 0, torch.qint8)",
        "ref.quantise(data, scales[:, None], zero_points[:, None])",
        _PER_CHANNEL_INPUTS,
    ),
    _define_round_trip(
        "quantize_dequantize",
        "torch.quantize_per_tensor(data, scale, zero_point, torch.qint8).dequantize()",
        "ref.quantise",
        make_square(NEAR_STEP_VALUES),
        attributes=_QUANTISATION_STEP,
    ),
    _define_round_trip(
        "fake_quantize_per_tensor_affine",
        "torch.fake_quantize_per_tensor_affine(data, scale, zero_point, -128, 127)",
        "ref.quantise",
        make_square(NEAR_STEP_VALUES),
        attributes=_QUANTISATION_STEP,
    ),
    _define_round_trip(
        "fake_quantize_per_channel_affine",
        "torch.fake_quantize_per_channel_affine(data, scales, zero_points.int(), 0, -128, 127)",
        "ref.quantise(data, scales[:, None], zero_points[:, None])",
        _PER_CHANNEL_INPUTS,
    ),
)
