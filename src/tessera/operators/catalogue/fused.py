"""Operators that are commonly fused, written as their steps; beside them, how each can be had fused.

The definition's own expression is the unfused one, so that every backend can run it: compilers and graph optimisers
fuse it by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tessera.operators.draws import uniform
from tessera.operators.operator import Call, Input, Operator, by_size
from tessera.operators.work import per_output, product


@dataclass(frozen=True, slots=True, kw_only=True)
class Fusion:
    """`kept` is the same steps with intermediate results in place or in buffers that exist; `library` is one kernel
    of torch's own, where there is one. `buffers` are made before anything is timed."""

    kept: str
    library: str = ""
    buffers: Mapping[str, str] = field(default_factory=dict)


def _conv(*more: str) -> dict[str, Mapping[str, Input]]:
    """A convolution 3 x 3 with bias; `more` is "norm" for what batch norm takes, "residual" for one more like the output."""

    def inputs(n: int, c: int, s: int) -> dict[str, Input]:
        found = {
            "data": Input(shape=(n, c, s, s)),
            "weight": Input(shape=(c, c, 3, 3)),
            "bias": Input(shape=(c,)),
        }
        if "norm" in more:
            found |= {
                "scale": Input(shape=(c,)),
                "shift": Input(shape=(c,)),
                "running_mean": Input(shape=(c,), grad=False),
                "running_var": Input(shape=(c,), draw=uniform(0.5, 2.0), grad=False),
            }
        if "residual" in more:
            found["residual"] = Input(shape=(n, c, s, s))
        return found

    return by_size(inputs, (1, 16, 28), (1, 64, 56), (8, 64, 56))


def _linear(*more: str) -> dict[str, Mapping[str, Input]]:
    """A layer of a transformer, tokens times a square weight; `more` names vectors as wide as it."""

    def inputs(tokens: int, width: int) -> dict[str, Input]:
        found = {
            "data": Input(shape=(tokens, width)),
            "weight": Input(shape=(width, width)),
            "bias": Input(shape=(width,)),
        }
        return found | {name: Input(shape=(width,)) for name in more}

    return by_size(inputs, (16, 64), (256, 768), (2048, 1024))


def _same(*names: str) -> dict[str, Mapping[str, Input]]:
    """Matrices of one shape, for chains of elementwise steps."""
    return by_size(lambda n: {name: Input(shape=(n, n)) for name in names}, 64, 1024, 4096)


def _linear_flops(call: Call) -> float:
    return 2.0 * call.shapes["data"][0] * call.shapes["weight"][0] * call.shapes["weight"][1]


CONV = "F.conv2d(data, weight, bias, padding=1)"
CONV_REF = "ref.convolution(data, weight, bias, padding=1)"
NORM = "running_mean, running_var, scale, shift, training=False"
FOLDED = {
    "folded_weight": "weight * (scale / torch.sqrt(running_var + 1e-5)).reshape(-1, 1, 1, 1)",
    "folded_bias": "(bias - running_mean) * scale / torch.sqrt(running_var + 1e-5) + shift",
}
NORM_REF = (
    "(lambda y: (y - running_mean.reshape(-1, 1, 1)) / np.sqrt(running_var.reshape(-1, 1, 1) + 1e-5)"
    " * scale.reshape(-1, 1, 1) + shift.reshape(-1, 1, 1))"
)
GELU_REF = "(lambda y: y * special.ndtr(y))"
SOFTMAX_REF = "(lambda y: np.exp(y - special.logsumexp(y, -1, keepdims=True)))"
POINTWISE = "[1, 1], [1, 1], [1, 1], 1"  # padding, stride, dilation, groups of mkldnn's convolution


def _fused(
    name: str, torch: str, reference: str, sizes: dict[str, Mapping[str, Input]], fusion: Fusion, flops: object = None
) -> tuple[Operator, Fusion]:
    operator = Operator(
        name=name,
        category="fused",
        torch=torch,
        reference=reference,
        sizes=sizes,
        flops=flops if callable(flops) else per_output(2.0),
    )
    return operator, fusion


_ALL = (
    _fused(
        "conv2d_relu",
        f"F.relu({CONV})",
        f"np.maximum({CONV_REF}, 0)",
        _conv(),
        Fusion(
            kept=f"{CONV}.relu_()",
            library=f"torch.ops.mkldnn._convolution_pointwise(data, weight, bias, {POINTWISE}, 'relu', [], '')",
        ),
        product("weight"),
    ),
    _fused(
        "conv2d_batch_norm",
        f"F.batch_norm({CONV}, {NORM})",
        f"{NORM_REF}({CONV_REF})",
        _conv("norm"),
        Fusion(
            kept=f"{CONV}.sub_(m).mul_(s).add_(b)",
            library="F.conv2d(data, folded_weight, folded_bias, padding=1)",
            buffers=FOLDED
            | {
                "m": "running_mean.reshape(-1, 1, 1)",
                "s": "(scale / torch.sqrt(running_var + 1e-5)).reshape(-1, 1, 1)",
                "b": "shift.reshape(-1, 1, 1)",
            },
        ),
        product("weight"),
    ),
    _fused(
        "conv2d_batch_norm_relu",
        f"F.relu(F.batch_norm({CONV}, {NORM}))",
        f"np.maximum({NORM_REF}({CONV_REF}), 0)",
        _conv("norm"),
        Fusion(
            kept=f"F.batch_norm({CONV}, {NORM}).relu_()",
            library="torch.ops.mkldnn._convolution_pointwise("
            f"data, folded_weight, folded_bias, {POINTWISE}, 'relu', [], '')",
            buffers=FOLDED,
        ),
        product("weight"),
    ),
    _fused(
        "conv2d_add_relu",
        f"F.relu({CONV} + residual)",
        f"np.maximum({CONV_REF} + residual, 0)",
        _conv("residual"),
        Fusion(
            kept=f"{CONV}.add_(residual).relu_()",
            library="torch.ops.mkldnn._convolution_pointwise.binary("
            f"data, residual, weight, bias, {POINTWISE}, 'add', 1.0, 'relu', [], '')",
        ),
        product("weight"),
    ),
    _fused(
        "conv2d_silu",
        f"F.silu({CONV})",
        f"(lambda y: y * special.expit(y))({CONV_REF})",
        _conv(),
        Fusion(
            kept=f"F.silu({CONV}, inplace=True)",
            library=f"torch.ops.mkldnn._convolution_pointwise(data, weight, bias, {POINTWISE}, 'swish', [], '')",
        ),
        product("weight"),
    ),
    _fused(
        "linear_gelu",
        "F.gelu(F.linear(data, weight, bias))",
        f"{GELU_REF}(data @ weight.T + bias)",
        _linear(),
        Fusion(
            kept="torch._C._nn.gelu(torch.addmm(bias, data, transposed, out=hidden), out=result)",
            library="torch.ops.mkldnn._linear_pointwise(data, weight, bias, 'gelu', [], 'none')",
            buffers={
                "transposed": "weight.T",
                "hidden": "torch.empty_like(data)",
                "result": "torch.empty_like(data)",
            },
        ),
        _linear_flops,
    ),
    _fused(
        "linear_relu",
        "F.relu(F.linear(data, weight, bias))",
        "np.maximum(data @ weight.T + bias, 0)",
        _linear(),
        Fusion(
            kept="torch.addmm(bias, data, transposed, out=hidden).relu_()",
            library="torch.ops.mkldnn._linear_pointwise(data, weight, bias, 'relu', [], '')",
            buffers={"transposed": "weight.T", "hidden": "torch.empty_like(data)"},
        ),
        _linear_flops,
    ),
    _fused(
        "matmul_bias_relu",
        "F.relu(torch.matmul(data, weight) + bias)",
        "np.maximum(data @ weight + bias, 0)",
        _linear(),
        Fusion(
            kept="torch.mm(data, weight, out=hidden).add_(bias).relu_()",
            library="torch._addmm_activation(bias, data, weight)",
            buffers={"hidden": "torch.empty_like(data)"},
        ),
        _linear_flops,
    ),
    _fused(
        "layer_norm_linear",
        "F.linear(F.layer_norm(data, (data.shape[-1],), scale, shift), weight, bias)",
        "(lambda y: ((y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-5) * scale + shift)"
        " @ weight.T + bias)(data)",
        _linear("scale", "shift"),
        Fusion(
            kept="torch.addmm(bias, torch.native_layer_norm(data, (data.shape[-1],), scale, shift, 1e-5)[0],"
            " transposed, out=hidden)",
            buffers={"transposed": "weight.T", "hidden": "torch.empty_like(data)"},
        ),
        _linear_flops,
    ),
    _fused(
        "softmax_matmul",
        "torch.matmul(torch.softmax(data, -1), weight)",
        f"{SOFTMAX_REF}(data) @ weight",
        by_size(
            lambda n, w: {"data": Input(shape=(n, w)), "weight": Input(shape=(w, w))},
            (16, 64),
            (256, 768),
            (2048, 1024),
        ),
        Fusion(
            kept="torch.mm(torch.softmax(data, -1, out=hidden), weight, out=result)",
            buffers={"hidden": "torch.empty_like(data)", "result": "torch.empty_like(data)"},
        ),
        _linear_flops,
    ),
    _fused(
        "matmul_softmax_matmul",
        "torch.softmax(query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5, -1) @ value",
        f"{SOFTMAX_REF}(query @ key.swapaxes(-2, -1) * query.shape[-1] ** -0.5) @ value",
        by_size(
            lambda heads, n: {name: Input(shape=(heads, n, 64)) for name in ("query", "key", "value")},
            (2, 16),
            (12, 197),
            (16, 1024),
        ),
        Fusion(
            kept="torch.bmm(torch.softmax(torch.bmm(query, turned, out=scores).mul_(query.shape[-1] ** -0.5), -1,"
            " out=hidden), value, out=result)",
            library="F.scaled_dot_product_attention(query[None], key[None], value[None])[0]",
            buffers={
                "turned": "key.transpose(-2, -1)",
                "scores": "torch.empty(query.shape[0], query.shape[1], key.shape[1])",
                "hidden": "torch.empty_like(scores)",
                "result": "torch.empty_like(query)",
            },
        ),
    ),
    _fused(
        "multiply_add",
        "lhs * rhs + other",
        "lhs * rhs + other",
        _same("lhs", "rhs", "other"),
        Fusion(
            kept="torch.mul(lhs, rhs, out=hidden).add_(other)",
            library="torch.addcmul(other, lhs, rhs)",
            buffers={"hidden": "torch.empty_like(lhs)"},
        ),
    ),
    _fused(
        "multiply_add_tanh",
        "torch.tanh(lhs * rhs + other)",
        "np.tanh(lhs * rhs + other)",
        _same("lhs", "rhs", "other"),
        Fusion(
            kept="torch.mul(lhs, rhs, out=hidden).add_(other).tanh_()",
            buffers={"hidden": "torch.empty_like(lhs)"},
        ),
    ),
    _fused(
        "add_relu",
        "F.relu(lhs + rhs)",
        "np.maximum(lhs + rhs, 0)",
        _same("lhs", "rhs"),
        Fusion(kept="torch.add(lhs, rhs, out=hidden).relu_()", buffers={"hidden": "torch.empty_like(lhs)"}),
    ),
    _fused(
        "silu_multiply",
        "F.silu(lhs) * rhs",
        "lhs * special.expit(lhs) * rhs",
        _same("lhs", "rhs"),
        Fusion(
            kept="torch._C._nn.silu(lhs, out=hidden).mul_(rhs)",
            buffers={"hidden": "torch.empty_like(lhs)"},
        ),
    ),
    _fused(
        "add_layer_norm",
        "F.layer_norm(lhs + rhs, (lhs.shape[-1],))",
        "(lambda y: (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-5))(lhs + rhs)",
        _same("lhs", "rhs"),
        Fusion(
            kept="F.layer_norm(torch.add(lhs, rhs, out=hidden), (lhs.shape[-1],))",
            buffers={"hidden": "torch.empty_like(lhs)"},
        ),
    ),
    _fused(
        "scale_softmax",
        "torch.softmax(data * 0.125, -1)",
        f"{SOFTMAX_REF}(data * 0.125)",
        _same("data"),
        Fusion(
            kept="torch.softmax(torch.mul(data, 0.125, out=hidden), -1, out=result)",
            buffers={"hidden": "torch.empty_like(data)", "result": "torch.empty_like(data)"},
        ),
    ),
    _fused(
        "subtract_square_mean",
        "torch.mean(torch.square(lhs - rhs))",
        "np.mean(np.square(lhs - rhs))",
        _same("lhs", "rhs"),
        Fusion(
            kept="torch.mean(torch.sub(lhs, rhs, out=hidden).square_())",
            library="F.mse_loss(lhs, rhs)",
            buffers={"hidden": "torch.empty_like(lhs)"},
        ),
    ),
)

OPERATORS = tuple(operator for operator, _ in _ALL)
FUSIONS = {operator.name: fusion for operator, fusion in _ALL}


def fusions(operator: str) -> tuple[str, ...]:
    """The ways in which an operator can be had fused; an operator that is not known here has none."""
    if operator not in FUSIONS:
        return ()
    return ("compile", "library") if FUSIONS[operator].library else ("compile",)
