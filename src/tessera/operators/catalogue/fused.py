"""Sequences of operations that are commonly fused: their separate steps, and their fused implementations.

The torch expression of such an operator runs the separate steps, so that every backend can run it, and compilers and
graph optimisers can fuse it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tessera.operators.catalogue.families import MATRIX_SIDES, Settings, Sizes, define_operator, write_both
from tessera.operators.draws import uniform
from tessera.operators.operator import Input, Operator, OperatorCall, count_convolution_flops, make_sizes

# factor on the gradient tolerance: after a long sum, a value near zero may have different signs in float32 and
# float64, and then the gradient of ReLU differs
KINK_TOLERANCE = 10.0
SOFTMAX_REFERENCE = "(lambda y: np.exp(y - special.logsumexp(y, -1, keepdims=True)))"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fusion:
    """The fused implementations of an operator, as torch source.

    `kept` runs the steps in place or into preallocated buffers. `library` calls one kernel of torch; it is empty if
    there is none. `buffers` are the preallocated buffers by name.
    """

    kept: str
    library: str = ""
    buffers: Mapping[str, str] = field(default_factory=dict)


def _define_fused(
    name: str,
    torch: str,
    reference: str,
    sizes: Sizes,
    *,
    kept: str,
    library: str = "",
    buffers: Mapping[str, str] | None = None,
    **settings: Any,
) -> tuple[Operator, Fusion]:
    """Define an operator of the category `fused`; the expressions `torch` and `reference` run the separate steps.

    `kept` may write into buffers (`out=NAME`). A NAME missing from `buffers` gets `torch.empty_like` of the first
    input.
    """
    operator = define_operator("fused", name, torch, reference, sizes, **{"flops": 2, **settings})
    buffers = dict(buffers or {})
    for buffer in re.findall(r"out=(\w+)", kept):
        buffers.setdefault(buffer, f"torch.empty_like({next(iter(sizes['small']))})")
    return operator, Fusion(kept=kept, library=library, buffers=buffers)


def _define_layer(name: str, torch: str, reference: str, sizes: Sizes, **fusion: Any) -> tuple[Operator, Fusion]:
    """Define a convolution or matrix product with further steps, whose FLOPs are those of the product."""
    settings: Settings = {
        "flops": count_convolution_flops if name.startswith("conv") else _count_linear_flops,
        "gradient_tolerance": KINK_TOLERANCE if name.endswith("relu") else 1.0,
    }
    return _define_fused(name, torch, reference, sizes, **settings, **fusion)


def _make_conv(*extras: str) -> Sizes:
    """Make the inputs of a 3 x 3 convolution with bias; `extras` adds batch norm ("norm") or a "residual"."""

    def build_inputs(n: int, c: int, s: int) -> dict[str, Input]:
        inputs = {"data": Input((n, c, s, s)), "weight": Input((c, c, 3, 3)), "bias": Input((c,))}
        if "norm" in extras:
            inputs |= {
                "scale": Input((c,)),
                "shift": Input((c,)),
                "running_mean": Input((c,), grad=False),
                "running_var": Input((c,), uniform(0.5, 2.0), grad=False),
            }
        if "residual" in extras:
            inputs["residual"] = Input((n, c, s, s))
        return inputs

    return make_sizes(build_inputs, (1, 16, 28), (1, 64, 56), (8, 64, 56))


def _make_linear(*vectors: str) -> Sizes:
    """Make the inputs of a linear layer: (tokens, width), a square weight and a bias; `vectors` names more vectors."""

    def build_inputs(tokens: int, width: int) -> dict[str, Input]:
        inputs = {"data": Input((tokens, width)), "weight": Input((width, width)), "bias": Input((width,))}
        return inputs | {name: Input((width,)) for name in vectors}

    return make_sizes(build_inputs, (16, 64), (256, 768), (2048, 1024))


def _count_linear_flops(call: OperatorCall) -> float:
    return 2.0 * call.shapes["data"][0] * call.shapes["weight"][0] * call.shapes["weight"][1]


CONV_TORCH = "F.conv2d(data, weight, bias, padding=1)"
CONV_REFERENCE = "ref.convolution(data, weight, bias, padding=1)"
BATCH_NORM_ARGUMENTS = "running_mean, running_var, scale, shift, training=False"
FOLDED_BUFFERS = {
    "folded_weight": "weight * (scale / torch.sqrt(running_var + 1e-5)).reshape(-1, 1, 1, 1)",
    "folded_bias": "(bias - running_mean) * scale / torch.sqrt(running_var + 1e-5) + shift",
}
BATCH_NORM_REFERENCE = (
    "(lambda y: (y - running_mean.reshape(-1, 1, 1)) / np.sqrt(running_var.reshape(-1, 1, 1) + 1e-5)"
    " * scale.reshape(-1, 1, 1) + shift.reshape(-1, 1, 1))"
)
GELU_REFERENCE = "(lambda y: y * special.ndtr(y))"
UNIT_WINDOW = "[1, 1], [1, 1], [1, 1], 1"  # padding, stride, dilation and groups, as arguments of mkldnn's convolution


_HEAD_INPUTS = make_sizes(
    lambda heads, n: {name: Input((heads, n, 64)) for name in ("query", "key", "value")}, (2, 16), (12, 197), (16, 1024)
)

FUSED_LAYERS = (
    _define_layer(
        "conv2d_relu",
        f"F.relu({CONV_TORCH})",
        f"np.maximum({CONV_REFERENCE}, 0)",
        _make_conv(),
        kept=f"{CONV_TORCH}.relu_()",
        library=f"torch.ops.mkldnn._convolution_pointwise(data, weight, bias, {UNIT_WINDOW}, 'relu', [], '')",
    ),
    _define_layer(
        "conv2d_batch_norm",
        f"F.batch_norm({CONV_TORCH}, {BATCH_NORM_ARGUMENTS})",
        f"{BATCH_NORM_REFERENCE}({CONV_REFERENCE})",
        _make_conv("norm"),
        kept=f"{CONV_TORCH}.sub_(m).mul_(s).add_(b)",
        library="F.conv2d(data, folded_weight, folded_bias, padding=1)",
        buffers=FOLDED_BUFFERS
        | {
            "m": "running_mean.reshape(-1, 1, 1)",
            "s": "(scale / torch.sqrt(running_var + 1e-5)).reshape(-1, 1, 1)",
            "b": "shift.reshape(-1, 1, 1)",
        },
    ),
    _define_layer(
        "conv2d_batch_norm_relu",
        f"F.relu(F.batch_norm({CONV_TORCH}, {BATCH_NORM_ARGUMENTS}))",
        f"np.maximum({BATCH_NORM_REFERENCE}({CONV_REFERENCE}), 0)",
        _make_conv("norm"),
        kept=f"F.batch_norm({CONV_TORCH}, {BATCH_NORM_ARGUMENTS}).relu_()",
        library="torch.ops.mkldnn._convolution_pointwise("
        f"data, folded_weight, folded_bias, {UNIT_WINDOW}, 'relu', [], '')",
        buffers=FOLDED_BUFFERS,
    ),
    _define_layer(
        "conv2d_add_relu",
        f"F.relu({CONV_TORCH} + residual)",
        f"np.maximum({CONV_REFERENCE} + residual, 0)",
        _make_conv("residual"),
        kept=f"{CONV_TORCH}.add_(residual).relu_()",
        library="torch.ops.mkldnn._convolution_pointwise.binary("
        f"data, residual, weight, bias, {UNIT_WINDOW}, 'add', 1.0, 'relu', [], '')",
    ),
    _define_layer(
        "conv2d_silu",
        f"F.silu({CONV_TORCH})",
        f"(lambda y: y * special.expit(y))({CONV_REFERENCE})",
        _make_conv(),
        kept=f"F.silu({CONV_TORCH}, inplace=True)",
        library=f"torch.ops.mkldnn._convolution_pointwise(data, weight, bias, {UNIT_WINDOW}, 'swish', [], '')",
    ),
    _define_layer(
        "linear_gelu",
        "F.gelu(F.linear(data, weight, bias))",
        f"{GELU_REFERENCE}(data @ weight.T + bias)",
        _make_linear(),
        kept="torch._C._nn.gelu(torch.addmm(bias, data, transposed, out=hidden), out=result)",
        library="torch.ops.mkldnn._linear_pointwise(data, weight, bias, 'gelu', [], 'none')",
        buffers={"transposed": "weight.T"},
    ),
    _define_layer(
        "linear_relu",
        "F.relu(F.linear(data, weight, bias))",
        "np.maximum(data @ weight.T + bias, 0)",
        _make_linear(),
        kept="torch.addmm(bias, data, transposed, out=hidden).relu_()",
        library="torch.ops.mkldnn._linear_pointwise(data, weight, bias, 'relu', [], '')",
        buffers={"transposed": "weight.T"},
    ),
    _define_layer(
        "matmul_bias_relu",
        "F.relu(torch.matmul(data, weight) + bias)",
        "np.maximum(data @ weight + bias, 0)",
        _make_linear(),
        kept="torch.mm(data, weight, out=hidden).add_(bias).relu_()",
        library="torch.ops.mkldnn._linear_pointwise(data, transposed, bias, 'relu', [], '')",
        buffers={"transposed": "weight.T.contiguous()"},
    ),
    _define_layer(
        "layer_norm_linear",
        "F.linear(F.layer_norm(data, (data.shape[-1],), scale, shift), weight, bias)",
        "(lambda y: ((y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-5) * scale + shift)"
        " @ weight.T + bias)(data)",
        _make_linear("scale", "shift"),
        kept="torch.addmm(bias, torch.native_layer_norm(data, (data.shape[-1],), scale, shift, 1e-5)[0],"
        " transposed, out=hidden)",
        buffers={"transposed": "weight.T"},
    ),
    _define_layer(
        "softmax_matmul",
        "torch.matmul(torch.softmax(data, -1), weight)",
        f"{SOFTMAX_REFERENCE}(data) @ weight",
        make_sizes(lambda n, w: {"data": Input((n, w)), "weight": Input((w, w))}, (16, 64), (256, 768), (2048, 1024)),
        kept="torch.mm(torch.softmax(data, -1, out=hidden), weight, out=result)",
    ),
    _define_fused(
        "matmul_softmax_matmul",
        "torch.softmax(query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5, -1) @ value",
        f"{SOFTMAX_REFERENCE}(query @ key.swapaxes(-2, -1) * query.shape[-1] ** -0.5) @ value",
        _HEAD_INPUTS,
        kept="torch.bmm(torch.softmax(torch.bmm(query, turned, out=scores).mul_(query.shape[-1] ** -0.5), -1,"
        " out=hidden), value, out=result)",
        library="F.scaled_dot_product_attention(query[None], key[None], value[None])[0]",
        buffers={
            "turned": "key.transpose(-2, -1)",
            "scores": "query.new_empty(query.shape[0], query.shape[1], key.shape[1])",
            "hidden": "torch.empty_like(scores)",
        },
        flops=lambda call: 4.0 * math.prod(call.shapes["query"]) * call.shapes["key"][1],  # two matrix products
    ),
)


def _make_matrices(*names: str) -> Sizes:
    """Make matrices of the same shape, the inputs of chains of elementwise steps."""
    return make_sizes(lambda n: {name: Input((n, n)) for name in names}, *MATRIX_SIDES)


FUSED_CHAINS = (
    _define_fused(
        "multiply_add",
        "lhs * rhs + other",
        "lhs * rhs + other",
        _make_matrices("lhs", "rhs", "other"),
        kept="torch.mul(lhs, rhs, out=hidden).add_(other)",
        library="torch.addcmul(other, lhs, rhs)",
    ),
    _define_fused(
        "multiply_add_tanh",
        *write_both("tanh(lhs * rhs + other)"),
        _make_matrices("lhs", "rhs", "other"),
        kept="torch.mul(lhs, rhs, out=hidden).add_(other).tanh_()",
    ),
    _define_fused(
        "add_relu",
        "F.relu(lhs + rhs)",
        "np.maximum(lhs + rhs, 0)",
        _make_matrices("lhs", "rhs"),
        kept="torch.add(lhs, rhs, out=hidden).relu_()",
    ),
    _define_fused(
        "silu_multiply",
        "F.silu(lhs) * rhs",
        "lhs * special.expit(lhs) * rhs",
        _make_matrices("lhs", "rhs"),
        kept="torch._C._nn.silu(lhs, out=hidden).mul_(rhs)",
    ),
    _define_fused(
        "add_layer_norm",
        "F.layer_norm(lhs + rhs, (lhs.shape[-1],))",
        "(lambda y: (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-5))(lhs + rhs)",
        _make_matrices("lhs", "rhs"),
        kept="F.layer_norm(torch.add(lhs, rhs, out=hidden), (lhs.shape[-1],))",
    ),
    _define_fused(
        "scale_softmax",
        "torch.softmax(data * 0.125, -1)",
        f"{SOFTMAX_REFERENCE}(data * 0.125)",
        _make_matrices("data"),
        kept="torch.softmax(torch.mul(data, 0.125, out=hidden), -1, out=result)",
    ),
    _define_fused(
        "subtract_square_mean",
        "torch.mean(torch.square(lhs - rhs))",
        "np.mean(np.square(lhs - rhs))",
        _make_matrices("lhs", "rhs"),
        kept="torch.mean(torch.sub(lhs, rhs, out=hidden).square_())",
        flops=3,
        flops_of="lhs",
    ),
)

OPERATORS = tuple(operator for operator, _ in (*FUSED_LAYERS, *FUSED_CHAINS))
FUSIONS = {operator.name: fusion for operator, fusion in (*FUSED_LAYERS, *FUSED_CHAINS)}


def list_fusions(operator: str) -> tuple[str, ...]:
    """Return the values of `--fusion` that an operator supports; empty for operators outside the category `fused`."""
    if operator not in FUSIONS:
        return ()
    return ("compile", "library") if FUSIONS[operator].library else ("compile",)
