"""Integer and quantised operators: arithmetic on integers, and torch's kernels on eight-bit values with a scale.

Inputs are drawn as the stored integers, so that the reference knows them exactly. Quantised tensors and packed weights
are made once, in the untimed set-up. Values use seven bits: instructions for pairs of eight-bit products saturate
otherwise. Outputs are quantised again, so they are compared to half a step of their scale.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from tessera.operators.catalogue.families import NO_FLOPS, ElementwiseFamily, define_family
from tessera.operators.draws import integers, normal
from tessera.operators.operator import Input, Operator, OperatorCall, Shape, count_convolution_flops, make_sizes

STEP = 2.0**-5  # scale of quantised activations
WEIGHT_STEP = 2.0**-6  # scale of quantised weights, whose zero point is 0
ZERO_POINT = 64
ACTIVATIONS = integers(128)
WEIGHTS = integers(64, low=-64)
# an output of k products of uniform values has this standard deviation, divided by the root of k
PRODUCT_DEVIATION = 37.0 * 37.0 * STEP * WEIGHT_STEP
STEPS_PER_DEVIATION = 22

_ONLY_FLOAT32: Mapping[str, Any] = {"dtypes": ("float32",), "differentiable": False}


def _count_quantised_bytes(call: OperatorCall) -> float:
    """Return the bytes of inputs and quantised outputs; the outputs were converted to float32 for the check."""
    return sum(call.read.values()) + sum(call.written) / 4


def _count_bag_bytes(call: OperatorCall) -> float:
    """Return the bytes of the rows that are read, each with a scale and an offset, of the indices and the output."""
    rows, width = call.shapes["indices"][0], call.shapes["weight"][1]
    return rows * (width + 8.0) + call.read["indices"] + sum(call.written)


_define_quantised = define_family("quantised", moved=_count_quantised_bytes, **_ONLY_FLOAT32)
_integers = ElementwiseFamily("quantised", {**NO_FLOPS, "dtypes": ("float32",)})


def _quantise(name: str, scale: float = STEP, zero_point: int = ZERO_POINT) -> str:
    """Return the torch expression of a quantised tensor from the stored integers of an input."""
    return f"torch._make_per_tensor_quantized_tensor({name}, {scale}, {zero_point})"


def _dequantise(name: str, scale: float = STEP, zero_point: int = ZERO_POINT) -> str:
    """Return the reference expression of the values of a quantised input."""
    return f"(({name} - {zero_point}.0) * {scale})"


def _define_unary(
    name: str, torch: str, reference: str, sizes: Mapping[str, Mapping[str, Input]], **rest: Any
) -> Operator:
    setup = {"quantised": _quantise("data")}
    return _define_quantised(name, torch, reference.replace("values", _dequantise("data")), sizes, setup=setup, **rest)


def _define_binary(name: str, torch: str, reference: str, **rest: Any) -> Operator:
    sizes = make_sizes(lambda n: {key: Input((n, n), ACTIVATIONS, "uint8") for key in ("lhs", "rhs")}, 64, 1024, 4096)
    setup = {f"quantised_{key}": _quantise(key) for key in ("lhs", "rhs")}
    for key in ("lhs", "rhs"):
        reference = reference.replace(f"{key}_values", _dequantise(key))
    return _define_quantised(name, torch, reference, sizes, setup=setup, **rest)


def _choose_output_scale(products: int) -> dict[str, Any]:
    """Return scale and zero point of an output that is a sum of products."""
    return {"scale": PRODUCT_DEVIATION * math.sqrt(products) / STEPS_PER_DEVIATION, "zero_point": 128}


def _scale_linear_output(shapes: Mapping[str, Shape]) -> dict[str, Any]:
    return _choose_output_scale(shapes["weight"][1])


def _scale_convolution_output(shapes: Mapping[str, Shape]) -> dict[str, Any]:
    return _choose_output_scale(math.prod(shapes["weight"][1:])) | {"stride": 1, "padding": 1}


def _make_linear(kind: str) -> Mapping[str, Mapping[str, Input]]:
    draw = ACTIVATIONS if kind == "uint8" else normal
    return make_sizes(
        lambda rows, inner, columns: {
            "data": Input((rows, inner), draw, kind),
            "weight": Input((columns, inner), WEIGHTS, "int8"),
        },
        (8, 64, 64),
        (64, 1024, 1024),
        (512, 2048, 2048),
    )


_MATRICES = make_sizes(lambda n: {"data": Input((n, n), ACTIVATIONS, "uint8")}, 64, 1024, 4096)
_IMAGES = make_sizes(
    lambda n, c, s: {"data": Input((n, c, s, s), ACTIVATIONS, "uint8")}, (1, 16, 16), (8, 64, 56), (64, 64, 56)
)
_CONVOLUTION_INPUTS = make_sizes(
    lambda n, c, s: {
        "data": Input((n, c, s, s), ACTIVATIONS, "uint8"),
        "weight": Input((c, c, 3, 3), WEIGHTS, "int8"),
    },
    (1, 16, 28),
    (1, 64, 56),
    (8, 64, 56),
)
_BAGS = make_sizes(
    lambda rows, width, bags: {
        "weight": Input((rows, width)),
        "indices": Input((bags * 16,), integers("shapes['weight'][0]"), "int64"),
    },
    (100, 64, 4),
    (10_000, 64, 256),
    (100_000, 128, 4096),
)
_count_linear_flops = lambda call: 2.0 * math.prod(call.outputs[0]) * call.shapes["weight"][1]  # noqa: E731
_define_linear = partial(_define_quantised, flops=_count_linear_flops)
_PACKED_LINEAR = f"torch.ops.quantized.linear_prepack({_quantise('weight', WEIGHT_STEP, 0)}, None)"
_LINEAR_REFERENCE = f"{_dequantise('data')} @ (weight * {WEIGHT_STEP}).T"

OPERATORS = (
    # integers
    *(
        _integers.define_binary(f"{kind}_{name}", integers(11), integers(11), kind=kind, function=name)
        for kind in ("int8", "int32", "int64")
        for name in ("add", "multiply")
    ),
    # quantised tensors
    _define_unary("dequantize", "quantised.dequantize()", "values", _MATRICES, flops=2, moved=None),
    _define_unary("quantized_relu", "torch.relu(quantised)", "np.maximum(values, 0)", _MATRICES, flops=1),
    _define_unary("quantized_max_pool2d", "F.max_pool2d(quantised, 2)", "ref.max_pool(values, 2, 2)", _IMAGES, flops=3),
    _define_binary(
        "quantized_add",
        f"torch.ops.quantized.add(quantised_lhs, quantised_rhs, {2 * STEP}, {ZERO_POINT})",
        "lhs_values + rhs_values",
        flops=1,
        tolerance=200.0,
    ),
    _define_binary(
        "quantized_mul",
        f"torch.ops.quantized.mul(quantised_lhs, quantised_rhs, {2 * STEP}, 128)",
        "lhs_values * rhs_values",
        flops=1,
        tolerance=200.0,
    ),
    _define_binary(
        "quantized_cat",
        f"torch.ops.quantized.cat([quantised_lhs, quantised_rhs], 0, {STEP}, {ZERO_POINT})",
        "np.concatenate([lhs_values, rhs_values])",
    ),
    _define_linear(
        "quantized_linear",
        "torch.ops.quantized.linear(quantised, packed, scale, zero_point)",
        _LINEAR_REFERENCE,
        _make_linear("uint8"),
        attributes=_scale_linear_output,
        setup={"quantised": _quantise("data"), "packed": _PACKED_LINEAR},
        tolerance=200.0,
    ),
    _define_linear(
        "quantized_linear_dynamic",
        "torch.ops.quantized.linear_dynamic(data, packed, True)",
        f"data @ (weight * {WEIGHT_STEP}).T",
        _make_linear("float"),
        setup={"packed": _PACKED_LINEAR},
        moved=None,
        tolerance=1000.0,
    ),
    _define_quantised(
        "quantized_conv2d",
        "torch.ops.quantized.conv2d(quantised, packed, scale, zero_point)",
        f"ref.convolution({_dequantise('data')}, weight * {WEIGHT_STEP}, None, stride=stride, padding=padding)",
        _CONVOLUTION_INPUTS,
        attributes=_scale_convolution_output,
        setup={
            "quantised": _quantise("data"),
            "packed": f"torch.ops.quantized.conv2d_prepack({_quantise('weight', WEIGHT_STEP, 0)}, None, "
            "[stride, stride], [padding, padding], [1, 1], 1)",
        },
        flops=count_convolution_flops,
        tolerance=200.0,
    ),
    _define_quantised(
        "quantized_embedding_bag",
        "torch.ops.quantized.embedding_bag_byte_rowwise_offsets(packed, indices, offsets)",
        "weight[indices].reshape(-1, 16, weight.shape[1]).sum(1)",
        _BAGS,
        setup={
            "packed": "torch.ops.quantized.embedding_bag_byte_prepack(weight)",
            "offsets": "torch.arange(0, len(indices), 16)",
        },
        flops=16,
        moved=_count_bag_bytes,
        tolerance=500.0,
    ),
)
