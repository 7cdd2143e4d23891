"""Products of matrices and vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from tessera.operators.draws import integers, uniform
from tessera.operators.operator import Call, Input, Operator, Shape, by_size
from tessera.operators.work import per_output

Sizes = Mapping[str, Mapping[str, Input]]


def summed_over(name: str, *dims: int) -> Callable[[Call], float]:
    """Two FLOPs per output and element of the dims of an input that are summed over."""
    return lambda call: 2.0 * math.prod(call.outputs[0]) * math.prod(call.shapes[name][dim] for dim in dims)


def _gemm(name: str, torch: str, reference: str, sizes: Sizes, **others: Any) -> Operator:
    """A product, by default one that sums over the last dim of its left factor."""
    given = {"flops": summed_over("lhs", -1)} | others
    return Operator(name=name, category="gemm", torch=torch, reference=reference, sizes=sizes, **given)


def _matmul(name: str, sizes: Sizes, **others: Any) -> Operator:
    return _gemm(name, "torch.matmul(lhs, rhs)", "np.matmul(lhs, rhs)", sizes, **others)


def _pair(lhs: Shape, rhs: Shape, **others: Any) -> dict[str, Input]:
    return {"lhs": Input(shape=lhs, **others), "rhs": Input(shape=rhs, **others)}


def _with_bias(bias: Shape, lhs: Shape, rhs: Shape) -> dict[str, Input]:
    return {"bias": Input(shape=bias), **_pair(lhs, rhs)}


def _layer(features: int, out: int, *batch: int) -> dict[str, Input]:
    return {"data": Input(shape=(*batch, features)), "weight": Input(shape=(out, features))}


def _layer_with_bias(features: int, out: int, *batch: int) -> dict[str, Input]:
    return {**_layer(features, out, *batch), "bias": Input(shape=(out,))}


SQUARES = by_size(lambda n: _pair((n, n), (n, n)), 64, 512, 2048)
MATRIX_VECTOR = by_size(lambda n: _pair((n, n), (n,)), 64, 1024, 4096)
VECTORS = by_size(lambda n: _pair((n,), (n,)), 64, 1024, 4096)
LAYERS = ((64, 64, 16), (768, 768, 197), (1024, 4096, 1024))
BATCHES = ((8, 16), (64, 128), (256, 256))
# small and positive: a sum of a million products neither cancels nor leaves the range of float16
LONG = uniform(0.0, 0.2)


def _chain_flops(call: Call) -> float:
    """Of the two orders of three factors the cheaper one, which the operator picks."""
    (a, b), (_, c), (_, d) = (call.shapes[name] for name in ("first", "second", "third"))
    return 2.0 * min(a * b * c + a * c * d, b * c * d + a * b * d)


_MATRICES = (
    _matmul("matmul", SQUARES),
    _gemm(
        "mm",
        "torch.mm(lhs, rhs)",
        "np.matmul(lhs, rhs)",
        by_size(lambda m, k, n: _pair((m, k), (k, n)), (32, 64, 48), (197, 768, 768), (2048, 1024, 4096)),
    ),
    _gemm("matmul_transposed", "torch.matmul(lhs, rhs.mT)", "np.matmul(lhs, rhs.T)", SQUARES),
    _matmul("matmul_tall", by_size(lambda m, k: _pair((m, k), (k, k)), (1024, 8), (65536, 32), (1 << 20, 64))),
    _matmul("matmul_deep", by_size(lambda m, k: _pair((m, k), (k, m)), (8, 1024), (32, 65536), (64, 1 << 19))),
    _matmul("matmul_rank_one", by_size(lambda n: _pair((n, 1), (1, n)), 64, 1024, 4096)),
    _matmul(
        "matmul_complex",
        by_size(lambda n: _pair((n, n), (n, n), kind="complex"), 32, 256, 1024),
        flops=lambda call: 4.0 * summed_over("lhs", -1)(call),  # four real products for each complex one
        dtypes=("float32", "float64"),
    ),
    _gemm(
        "int_mm",
        "torch._int_mm(lhs, rhs)",
        # exact in double precision, and NumPy multiplies matrices of whole numbers without BLAS
        "np.matmul(lhs.astype(np.float64), rhs.astype(np.float64)).astype(np.int32)",
        by_size(lambda n: _pair((n, n), (n, n), kind="int8", draw=integers(128, low=-128)), 32, 128, 512),
        differentiable=False,
    ),
    _gemm(
        "linalg_multi_dot",
        "torch.linalg.multi_dot((first, second, third))",
        "np.linalg.multi_dot((first, second, third))",
        by_size(
            lambda n, k: {"first": Input(shape=(n, k)), "second": Input(shape=(k, n)), "third": Input(shape=(n, k))},
            (64, 8),
            (1024, 64),
            (8192, 256),
        ),
        aliases=("chain_matmul",),
        flops=_chain_flops,
    ),
    _gemm(
        "kron",
        "torch.kron(lhs, rhs)",
        "np.kron(lhs, rhs)",
        by_size(lambda n: _pair((n, n), (n, n)), 8, 32, 64),
        flops=per_output(),
    ),
    _gemm(
        "tensordot",
        "torch.tensordot(lhs, rhs, dims=dims)",
        "np.tensordot(lhs, rhs, axes=dims)",
        by_size(lambda m, k: _pair((m, k, k), (k, k, m)), (16, 8), (256, 16), (1024, 32)),
        attributes={"dims": 2},
        flops=summed_over("lhs", -1, -2),
    ),
)

_BATCHES = (
    _gemm(
        "bmm", "torch.bmm(lhs, rhs)", "np.matmul(lhs, rhs)", by_size(lambda b, n: _pair((b, n, n), (b, n, n)), *BATCHES)
    ),
    _matmul(
        "matmul_batched",
        by_size(
            lambda b, h, n, d: _pair((b, h, n, d), (b, h, d, n)), (1, 2, 16, 16), (4, 8, 128, 64), (8, 16, 512, 64)
        ),
    ),
    _matmul("matmul_broadcast", by_size(lambda b, n: _pair((b, n, n), (n, n)), *BATCHES)),
    _gemm(
        "baddbmm",
        "torch.baddbmm(bias, lhs, rhs)",
        "np.add(bias, np.matmul(lhs, rhs))",
        by_size(lambda b, n: _with_bias((b, n, n), (b, n, n), (b, n, n)), *BATCHES),
    ),
    _gemm(
        "addbmm",
        "torch.addbmm(bias, lhs, rhs)",
        "np.add(bias, np.matmul(lhs, rhs).sum(axis=0))",
        by_size(lambda b, n: _with_bias((n, n), (b, n, n), (b, n, n)), *BATCHES),
        flops=summed_over("lhs", 0, -1),
    ),
)

_VECTORS = (
    _gemm(
        "dot",
        "torch.dot(lhs, rhs)",
        "np.dot(lhs, rhs)",
        by_size(lambda n: _pair((n,), (n,), draw=LONG), 4096, 1 << 20, 1 << 24),
    ),
    _gemm(
        "vdot",
        "torch.vdot(lhs, rhs)",
        "np.vdot(lhs, rhs)",
        by_size(lambda n: _pair((n,), (n,), kind="complex", draw=LONG), 2048, 1 << 19, 1 << 23),
        flops=lambda call: 8.0 * call.shapes["lhs"][0],
        dtypes=("float32", "float64"),
    ),
    _gemm(
        "linalg_vecdot",
        "torch.linalg.vecdot(lhs, rhs)",
        "np.einsum('...i,...i->...', lhs, rhs)",  # `vecdot` came with NumPy 2
        by_size(lambda n, k: _pair((n, k), (n, k)), (16, 256), (2048, 512), (8192, 2048)),
    ),
    _gemm("inner", "torch.inner(lhs, rhs)", "np.inner(lhs, rhs)", SQUARES),
    _gemm("outer", "torch.outer(lhs, rhs)", "np.outer(lhs, rhs)", VECTORS, aliases=("ger",), flops=per_output()),
    _gemm("mv", "torch.mv(lhs, rhs)", "np.matmul(lhs, rhs)", MATRIX_VECTOR),
    _matmul("matmul_vector", by_size(lambda n: _pair((n,), (n, n)), 64, 1024, 4096)),
    _gemm(
        "addr",
        "torch.addr(bias, lhs, rhs)",
        "np.add(bias, np.outer(lhs, rhs))",
        by_size(lambda n: _with_bias((n, n), (n,), (n,)), 64, 1024, 4096),
        flops=per_output(2.0),
    ),
    _gemm(
        "addmv",
        "torch.addmv(bias, lhs, rhs)",
        "np.add(bias, np.matmul(lhs, rhs))",
        by_size(lambda n: _with_bias((n,), (n, n), (n,)), 64, 1024, 4096),
    ),
)

_LAYERS = (
    _gemm(
        "addmm",
        "torch.addmm(bias, lhs, rhs)",
        "np.add(bias, np.matmul(lhs, rhs))",
        by_size(lambda n: _with_bias((n,), (n, n), (n, n)), 64, 512, 2048),
    ),
    _gemm(
        "inplace_addmm",
        "bias.addmm_(lhs, rhs, beta=0.5)",  # halved before the product is added: the buffer stays finite
        "0.5 * bias + np.matmul(lhs, rhs)",
        by_size(lambda n: _with_bias((n, n), (n, n), (n, n)), 64, 512, 2048),
        aliases=("addmm_",),
        differentiable=False,
    ),
    _gemm(
        "linear",
        "F.linear(data, weight, bias)",
        "np.matmul(data, weight.T) + bias",
        by_size(_layer_with_bias, *LAYERS),
        flops=summed_over("data", -1),
    ),
    _gemm(
        "linear_no_bias",
        "F.linear(data, weight)",
        "np.matmul(data, weight.T)",
        by_size(_layer, *LAYERS),
        flops=summed_over("data", -1),
    ),
    _gemm(
        "linear_sequence",
        "F.linear(data, weight, bias)",
        "np.matmul(data, weight.T) + bias",
        by_size(_layer_with_bias, (32, 128, 2, 8), (256, 1024, 4, 128), (512, 2048, 8, 512)),
        flops=summed_over("data", -1),
    ),
    _gemm(
        "linear_classifier",
        "F.linear(data, weight, bias)",
        "np.matmul(data, weight.T) + bias",
        by_size(_layer_with_bias, (64, 100, 1), (2048, 1000, 1), (4096, 32000, 1)),
        flops=summed_over("data", -1),
    ),
    _gemm(
        "bilinear",
        "F.bilinear(lhs, rhs, weight, bias)",
        "np.einsum('ni,oij,nj->no', lhs, weight, rhs, optimize=True) + bias",
        by_size(
            lambda n, k, o: {**_pair((n, k), (n, k)), "weight": Input(shape=(o, k, k)), "bias": Input(shape=(o,))},
            (8, 8, 8),
            (32, 64, 32),
            (128, 128, 64),
        ),
        flops=lambda call: 2.0 * math.prod(call.shapes["weight"]) * call.shapes["lhs"][0],
    ),
)

OPERATORS = (*_MATRICES, *_BATCHES, *_VECTORS, *_LAYERS)
