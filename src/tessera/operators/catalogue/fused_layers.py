"""Layers of networks with what follows them, as it is commonly fused."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tessera.operators.catalogue.fusion import KINKED, SOFTMAX_REF, Fusion, fused
from tessera.operators.draws import uniform
from tessera.operators.operator import Call, Input, by_size
from tessera.operators.work import product


def _conv(*more: str) -> dict[str, Mapping[str, Input]]:
    """A convolution 3 x 3 with bias; `more` is "norm" for what batch norm takes, "residual" for what is added."""

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
POINTWISE = "[1, 1], [1, 1], [1, 1], 1"  # padding, stride, dilation, groups of mkldnn's convolution


LAYERS = (
    fused(
        "conv2d_relu",
        f"F.relu({CONV})",
        f"np.maximum({CONV_REF}, 0)",
        _conv(),
        Fusion(
            kept=f"{CONV}.relu_()",
            library=f"torch.ops.mkldnn._convolution_pointwise(data, weight, bias, {POINTWISE}, 'relu', [], '')",
        ),
        product("weight"),
        gradient_tolerance=KINKED,
    ),
    fused(
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
    fused(
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
        gradient_tolerance=KINKED,
    ),
    fused(
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
        gradient_tolerance=KINKED,
    ),
    fused(
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
    fused(
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
    fused(
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
        gradient_tolerance=KINKED,
    ),
    fused(
        "matmul_bias_relu",
        "F.relu(torch.matmul(data, weight) + bias)",
        "np.maximum(data @ weight + bias, 0)",
        _linear(),
        Fusion(
            kept="torch.mm(data, weight, out=hidden).add_(bias).relu_()",
            library="torch.ops.mkldnn._linear_pointwise(data, transposed, bias, 'relu', [], '')",
            buffers={"transposed": "weight.T.contiguous()", "hidden": "torch.empty_like(data)"},
        ),
        _linear_flops,
        gradient_tolerance=KINKED,
    ),
    fused(
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
    fused(
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
    fused(
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
                "scores": "query.new_empty(query.shape[0], query.shape[1], key.shape[1])",
                "hidden": "torch.empty_like(scores)",
                "result": "torch.empty_like(query)",
            },
        ),
        lambda call: 4.0 * math.prod(call.shapes["query"]) * call.shapes["key"][1],  # two products
    ),
)
