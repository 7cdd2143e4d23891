"""Products of matrices and vectors (GEMM, GEMV, dot and outer products)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tessera.operators.catalogue.families import MATRIX_SIDES, Sizes, define_family, write_both
from tessera.operators.draws import integers, uniform
from tessera.operators.operator import Input, Operator, OperatorCall, Shape, make_sizes


def count_matmul_flops(name: str, *dims: int) -> Callable[[OperatorCall], float]:
    """Return a function that counts two FLOPs per output and summed element; input `name` is summed over `dims`."""
    return lambda call: 2.0 * math.prod(call.outputs[0]) * math.prod(call.shapes[name][dim] for dim in dims)


# defines a product; by default, FLOPs are counted for a sum over the last dim of `lhs`
_define_gemm = define_family("gemm", flops=count_matmul_flops("lhs", -1))


def _define_matmul(name: str, sizes: Sizes, **others: Any) -> Operator:
    return _define_gemm(name, *write_both("matmul(lhs, rhs)"), sizes, **others)


def _define_linear(name: str, inputs: Callable[..., dict[str, Input]], *scales: tuple[int, ...]) -> Operator:
    """Define a linear layer, with a bias if the inputs have one."""
    sizes = make_sizes(inputs, *scales)
    torch, reference = f"F.linear({', '.join(sizes['small'])})", "np.matmul(data, weight.T)"
    if "bias" in sizes["small"]:
        reference += " + bias"
    return _define_gemm(name, torch, reference, sizes, flops=count_matmul_flops("data", -1))


def _make_pair(lhs: Shape, rhs: Shape, **others: Any) -> dict[str, Input]:
    return {"lhs": Input(shape=lhs, **others), "rhs": Input(shape=rhs, **others)}


def _make_inputs_with_bias(bias: Shape, lhs: Shape, rhs: Shape) -> dict[str, Input]:
    return {"bias": Input(bias), **_make_pair(lhs, rhs)}


def _make_layer(features: int, out: int, *batch: int) -> dict[str, Input]:
    return {"data": Input((*batch, features)), "weight": Input((out, features))}


def _make_layer_with_bias(features: int, out: int, *batch: int) -> dict[str, Input]:
    return {**_make_layer(features, out, *batch), "bias": Input((out,))}


SQUARE_INPUTS = make_sizes(lambda n: _make_pair((n, n), (n, n)), 64, 512, 2048)
MATRIX_VECTOR_INPUTS = make_sizes(lambda n: _make_pair((n, n), (n,)), *MATRIX_SIDES)
VECTOR_INPUTS = make_sizes(lambda n: _make_pair((n,), (n,)), *MATRIX_SIDES)
LAYER_SCALES = ((64, 64, 16), (768, 768, 197), (1024, 4096, 1024))
BATCH_SCALES = ((8, 16), (64, 128), (256, 256))
# small and positive: a sum of a million products neither cancels nor overflows in float16
SMALL_POSITIVE_VALUES = uniform(0.0, 0.2)


def _count_chain_flops(call: OperatorCall) -> float:
    """Count the FLOPs of a product of three matrices in the cheaper order, which the operator chooses."""
    (a, b), (_, c), (_, d) = (call.shapes[name] for name in ("first", "second", "third"))
    return 2.0 * min(a * b * c + a * c * d, b * c * d + a * b * d)


_MATRIX_OPERATORS = (
    _define_matmul("matmul", SQUARE_INPUTS),
    _define_gemm(
        "mm",
        reference="np.matmul",
        sizes=make_sizes(lambda m, k, n: _make_pair((m, k), (k, n)), (32, 64, 48), (197, 768, 768), (2048, 1024, 4096)),
    ),
    _define_gemm("matmul_transposed", "torch.matmul(lhs, rhs.mT)", "np.matmul(lhs, rhs.T)", SQUARE_INPUTS),
    _define_matmul(
        "matmul_tall", make_sizes(lambda m, k: _make_pair((m, k), (k, k)), (1024, 8), (65536, 32), (1 << 20, 64))
    ),
    _define_matmul(
        "matmul_deep", make_sizes(lambda m, k: _make_pair((m, k), (k, m)), (8, 1024), (32, 65536), (64, 1 << 19))
    ),
    _define_matmul("matmul_rank_one", make_sizes(lambda n: _make_pair((n, 1), (1, n)), *MATRIX_SIDES)),
    _define_matmul(
        "matmul_complex",
        make_sizes(lambda n: _make_pair((n, n), (n, n), kind="complex"), 32, 256, 1024),
        flops=lambda call: 4.0 * count_matmul_flops("lhs", -1)(call),  # one complex product takes four real products
        dtypes=("float32", "float64"),
    ),
    _define_gemm(
        "int_mm",
        "torch._int_mm",
        "np.matmul(lhs.astype(np.float64), rhs.astype(np.float64)).astype(np.int32)",
        make_sizes(lambda n: _make_pair((n, n), (n, n), kind="int8", draw=integers(128, low=-128)), 32, 128, 512),
        differentiable=False,
    ),
    _define_gemm(
        "linalg_multi_dot",
        *write_both("linalg.multi_dot((first, second, third))"),
        make_sizes(
            lambda n, k: {"first": Input((n, k)), "second": Input((k, n)), "third": Input((n, k))},
            (64, 8),
            (1024, 64),
            (8192, 256),
        ),
        aliases=("chain_matmul",),
        flops=_count_chain_flops,
    ),
    _define_gemm("kron", sizes=make_sizes(lambda n: _make_pair((n, n), (n, n)), 8, 32, 64), flops=1),
    _define_gemm(
        "tensordot",
        "torch.tensordot(lhs, rhs, dims=dims)",
        "np.tensordot(lhs, rhs, axes=dims)",
        make_sizes(lambda m, k: _make_pair((m, k, k), (k, k, m)), (16, 8), (256, 16), (1024, 32)),
        attributes={"dims": 2},
        flops=count_matmul_flops("lhs", -1, -2),
    ),
)

_BATCH_OPERATORS = (
    _define_gemm(
        "bmm", reference="np.matmul", sizes=make_sizes(lambda b, n: _make_pair((b, n, n), (b, n, n)), *BATCH_SCALES)
    ),
    _define_matmul(
        "matmul_batched",
        make_sizes(
            lambda b, h, n, d: _make_pair((b, h, n, d), (b, h, d, n)), (1, 2, 16, 16), (4, 8, 128, 64), (8, 16, 512, 64)
        ),
    ),
    _define_matmul("matmul_broadcast", make_sizes(lambda b, n: _make_pair((b, n, n), (n, n)), *BATCH_SCALES)),
    _define_gemm(
        "baddbmm",
        reference="np.add(bias, np.matmul(lhs, rhs))",
        sizes=make_sizes(lambda b, n: _make_inputs_with_bias((b, n, n), (b, n, n), (b, n, n)), *BATCH_SCALES),
    ),
    _define_gemm(
        "addbmm",
        reference="np.add(bias, np.matmul(lhs, rhs).sum(axis=0))",
        sizes=make_sizes(lambda b, n: _make_inputs_with_bias((n, n), (b, n, n), (b, n, n)), *BATCH_SCALES),
        flops=count_matmul_flops("lhs", 0, -1),
    ),
)

_VECTOR_OPERATORS = (
    _define_gemm(
        "dot", sizes=make_sizes(lambda n: _make_pair((n,), (n,), draw=SMALL_POSITIVE_VALUES), 4096, 1 << 20, 1 << 24)
    ),
    _define_gemm(
        "vdot",
        sizes=make_sizes(
            lambda n: _make_pair((n,), (n,), kind="complex", draw=SMALL_POSITIVE_VALUES), 2048, 1 << 19, 1 << 23
        ),
        flops=lambda call: 8.0 * call.shapes["lhs"][0],
        dtypes=("float32", "float64"),
    ),
    _define_gemm(
        "linalg_vecdot",
        "torch.linalg.vecdot",
        "np.einsum('...i,...i->...', lhs, rhs)",
        make_sizes(lambda n, k: _make_pair((n, k), (n, k)), (16, 256), (2048, 512), (8192, 2048)),
    ),
    _define_gemm("inner", sizes=SQUARE_INPUTS),
    _define_gemm("outer", sizes=VECTOR_INPUTS, aliases=("ger",), flops=1),
    _define_gemm("mv", reference="np.matmul", sizes=MATRIX_VECTOR_INPUTS),
    _define_matmul("matmul_vector", make_sizes(lambda n: _make_pair((n,), (n, n)), *MATRIX_SIDES)),
    _define_gemm(
        "addr",
        reference="np.add(bias, np.outer(lhs, rhs))",
        sizes=make_sizes(lambda n: _make_inputs_with_bias((n, n), (n,), (n,)), *MATRIX_SIDES),
        flops=2.0,
    ),
    _define_gemm(
        "addmv",
        reference="np.add(bias, np.matmul(lhs, rhs))",
        sizes=make_sizes(lambda n: _make_inputs_with_bias((n,), (n, n), (n,)), *MATRIX_SIDES),
    ),
)

_LAYER_OPERATORS = (
    _define_gemm(
        "addmm",
        reference="np.add(bias, np.matmul(lhs, rhs))",
        sizes=make_sizes(lambda n: _make_inputs_with_bias((n,), (n, n), (n, n)), 64, 512, 2048),
    ),
    _define_gemm(
        "inplace_addmm",
        "bias.addmm_(lhs, rhs, beta=0.5)",  # beta=0.5 halves the buffer before each addition, so that it stays finite
        "0.5 * bias + np.matmul(lhs, rhs)",
        make_sizes(lambda n: _make_inputs_with_bias((n, n), (n, n), (n, n)), 64, 512, 2048),
        aliases=("addmm_",),
        differentiable=False,
    ),
    _define_linear("linear", _make_layer_with_bias, *LAYER_SCALES),
    _define_linear("linear_no_bias", _make_layer, *LAYER_SCALES),
    _define_linear("linear_sequence", _make_layer_with_bias, (32, 128, 2, 8), (256, 1024, 4, 128), (512, 2048, 8, 512)),
    _define_linear("linear_classifier", _make_layer_with_bias, (64, 100, 1), (2048, 1000, 1), (4096, 32000, 1)),
    _define_gemm(
        "bilinear",
        "F.bilinear",
        "np.einsum('ni,oij,nj->no', lhs, weight, rhs, optimize=True) + bias",
        make_sizes(
            lambda n, k, o: {**_make_pair((n, k), (n, k)), "weight": Input((o, k, k)), "bias": Input((o,))},
            (8, 8, 8),
            (32, 64, 32),
            (128, 128, 64),
        ),
        flops=lambda call: 2.0 * math.prod(call.shapes["weight"]) * call.shapes["lhs"][0],
    ),
)

OPERATORS = (*_MATRIX_OPERATORS, *_BATCH_OPERATORS, *_VECTOR_OPERATORS, *_LAYER_OPERATORS)
