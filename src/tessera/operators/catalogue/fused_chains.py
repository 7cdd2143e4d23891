"""Chains of elementwise steps and reductions that are commonly fused."""

from __future__ import annotations

from collections.abc import Mapping

from tessera.operators.catalogue.fusion import SOFTMAX_REF, Fusion, fused
from tessera.operators.operator import Input, by_size
from tessera.operators.work import per_input


def _same(*names: str) -> dict[str, Mapping[str, Input]]:
    """Matrices of one shape, for chains of elementwise steps."""
    return by_size(lambda n: {name: Input(shape=(n, n)) for name in names}, 64, 1024, 4096)


CHAINS = (
    fused(
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
    fused(
        "multiply_add_tanh",
        "torch.tanh(lhs * rhs + other)",
        "np.tanh(lhs * rhs + other)",
        _same("lhs", "rhs", "other"),
        Fusion(
            kept="torch.mul(lhs, rhs, out=hidden).add_(other).tanh_()",
            buffers={"hidden": "torch.empty_like(lhs)"},
        ),
    ),
    fused(
        "add_relu",
        "F.relu(lhs + rhs)",
        "np.maximum(lhs + rhs, 0)",
        _same("lhs", "rhs"),
        Fusion(kept="torch.add(lhs, rhs, out=hidden).relu_()", buffers={"hidden": "torch.empty_like(lhs)"}),
    ),
    fused(
        "silu_multiply",
        "F.silu(lhs) * rhs",
        "lhs * special.expit(lhs) * rhs",
        _same("lhs", "rhs"),
        Fusion(
            kept="torch._C._nn.silu(lhs, out=hidden).mul_(rhs)",
            buffers={"hidden": "torch.empty_like(lhs)"},
        ),
    ),
    fused(
        "add_layer_norm",
        "F.layer_norm(lhs + rhs, (lhs.shape[-1],))",
        "(lambda y: (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-5))(lhs + rhs)",
        _same("lhs", "rhs"),
        Fusion(
            kept="F.layer_norm(torch.add(lhs, rhs, out=hidden), (lhs.shape[-1],))",
            buffers={"hidden": "torch.empty_like(lhs)"},
        ),
    ),
    fused(
        "scale_softmax",
        "torch.softmax(data * 0.125, -1)",
        f"{SOFTMAX_REF}(data * 0.125)",
        _same("data"),
        Fusion(
            kept="torch.softmax(torch.mul(data, 0.125, out=hidden), -1, out=result)",
            buffers={"hidden": "torch.empty_like(data)", "result": "torch.empty_like(data)"},
        ),
    ),
    fused(
        "subtract_square_mean",
        "torch.mean(torch.square(lhs - rhs))",
        "np.mean(np.square(lhs - rhs))",
        _same("lhs", "rhs"),
        Fusion(
            kept="torch.mean(torch.sub(lhs, rhs, out=hidden).square_())",
            buffers={"hidden": "torch.empty_like(lhs)"},
        ),
        per_input("lhs", 3),
    ),
)
