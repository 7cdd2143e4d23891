"""Linear algebra: norms, determinants, factorisations, eigenvalues, inverses and solutions of linear systems."""

from __future__ import annotations

import math
from typing import Any

from tessera.operators.catalogue.families import WIDE_DTYPES, Settings, Sides, Sizes, define_family
from tessera.operators.draws import Draw, normal, positive_definite, symmetric, uniform, well_conditioned
from tessera.operators.operator import (
    CountFunction,
    Input,
    Operator,
    OperatorCall,
    count_no_bytes,
    count_per_input,
    count_per_output,
    make_sizes,
)

# eigenvalues around one: determinants and powers have magnitude one
near_identity = Draw("np.eye(shape[-1]) + 0.3 / shape[-1] ** 0.5 * rng.standard_normal(shape)")
# well-conditioned triangular matrices
heavy_lower = Draw(f"np.tril({near_identity.expression})")
heavy_upper = Draw(f"np.triu({near_identity.expression})")
# diagonally dominant symmetric matrices, whose factorisation exchanges no rows
heavy_symmetric = Draw(f"{symmetric.expression} + 3 * shape[-1] ** 0.5 * np.eye(shape[-1])")
# square matrices of half rank
low_rank = Draw(
    "rng.standard_normal((shape[0], shape[0] // 2)) @ rng.standard_normal((shape[0] // 2, shape[0])) / shape[0] ** 0.5"
)
# Householder vectors below the diagonal, so short that their reflections are nearly independent
reflectors = Draw("0.1 / shape[-2] ** 0.5 * rng.standard_normal(shape)")
reflector_scales = uniform(1.5, 1.9)
# a well-conditioned matrix, reshaped to a tensor with more dims
tensor_of_matrix = Draw(f"(lambda shape: {well_conditioned.expression})(shape[-1:] * 2).reshape(shape)")
# pivots of a factorisation: for each row, the one-based index of the same or a later row; and no row exchanges
random_pivots = Draw("rng.integers(np.arange(1, shape[0] + 1), shape[0] + 1)")
identity_pivots = Draw("np.arange(1, shape[0] + 1)")

# matrix sides for operators that read every element once (NORM_SIDES), take O(n^3) steps
# (DIRECT_SIDES), or iterate (ITERATIVE_SIDES)
NORM_SIDES = (64, 1024, 4096)
DIRECT_SIDES = (32, 512, 2048)
ITERATIVE_SIDES = (16, 128, 512)
TALL_SCALES = ((64, 16), (512, 128), (2048, 512))
# many small matrices, (count, side): dominated by the loop over matrices
BATCH_SCALES = ((64, 8), (4096, 8), (65536, 8))

_define_linalg = define_family("linear_algebra", **WIDE_DTYPES)


def _count_cubic_flops(factor: float) -> CountFunction:
    """Return a function that counts FLOPs: `factor * m * n**2` for each matrix of m rows and n columns."""

    def count_flops(call: OperatorCall) -> float:
        *many, rows, columns = call.shapes["data"]
        return factor * math.prod(many) * rows * columns**2

    return count_flops


def _define_matrix(
    name: str, sizes: Sizes, flops: float | CountFunction, *, function: str = "", **rest: Any
) -> Operator:
    """Define an operator of linear algebra.

    `flops` is a function, or a factor of m n^2 for each matrix of m rows and n columns; FLOPs are those of the textbook
    algorithm (Golub and Van Loan), with its typical number of iterations.
    """
    function = (function or name).replace("linalg_", "linalg.")
    count = flops if callable(flops) else _count_cubic_flops(flops)
    return _define_linalg(name, sizes=sizes, flops=count, function=function, **rest)


def _define_square(
    name: str, draw: Draw, flops: float | CountFunction, sides: Sides = DIRECT_SIDES, **rest: Any
) -> Operator:
    """Define an operator on one square matrix."""
    return _define_matrix(name, make_sizes(lambda n: {"data": Input((n, n), draw)}, *sides), flops, **rest)


def _define_iterative(name: str, draw: Draw, flops: float | CountFunction, **rest: Any) -> Operator:
    return _define_square(name, draw, flops, ITERATIVE_SIDES, **rest)


def _define_norm(name: str, count: float, draw: Draw = normal, **rest: Any) -> Operator:
    """Define an operator that reads a square matrix once, with `count` FLOPs per element."""
    return _define_square(name, draw, count_per_input("data", count), NORM_SIDES, **rest)


def _define_batched(function: str, draw: Draw, flops: float) -> Operator:
    """Define a function of `torch.linalg` on many small square matrices."""
    sizes = make_sizes(lambda count, n: {"data": Input((count, n, n), draw)}, *BATCH_SCALES)
    return _define_matrix(f"{function}_batched", sizes, flops, function=function)


TALL_INPUTS = make_sizes(lambda m, n: {"data": Input((m, n))}, *TALL_SCALES)
_MATRIX_NORM: Settings = {
    "torch": "torch.linalg.matrix_norm",
    "reference": "np.linalg.norm(data, ord=ord, axis=(-2, -1))",
}

_NORM_OPERATORS = (
    _define_norm("linalg_norm", 2.0),
    _define_norm(
        "linalg_vector_norm", 2.0, reference="np.linalg.norm(data, ord=ord, axis=dim)", attributes={"ord": 2, "dim": -1}
    ),
    _define_norm("linalg_matrix_norm", 2.0, attributes={"ord": "fro"}, **_MATRIX_NORM),
    _define_norm("linalg_matrix_norm_one", 1.0, attributes={"ord": 1}, **_MATRIX_NORM),
    _define_iterative("linalg_matrix_norm_nuclear", normal, 8 / 3, attributes={"ord": "nuc"}, **_MATRIX_NORM),
    _define_iterative("linalg_matrix_norm_spectral", normal, 8 / 3, attributes={"ord": 2}, **_MATRIX_NORM),
    _define_iterative("linalg_cond", well_conditioned, 8 / 3),
    _define_iterative(
        "linalg_matrix_rank",
        low_rank,
        8 / 3,
        reference="np.linalg.matrix_rank(data, rtol=rtol)",
        torch="torch.linalg.matrix_rank(data, rtol=rtol)",
        attributes={"rtol": 1e-3},
        differentiable=False,
    ),
    _define_square(
        "trace",
        uniform(0.5, 1.5),
        lambda call: call.shapes["data"][0],
        NORM_SIDES,
        moved=lambda call: call.read["data"] / call.shapes["data"][0],  # reads only the diagonal
    ),
    _define_norm("linalg_diagonal", 0.0, reference="np.diagonal", moved=count_no_bytes),
    _define_square("linalg_det", near_identity, 2 / 3),
    _define_batched("linalg_det", near_identity, 2 / 3),
    _define_square("linalg_slogdet", near_identity, 2 / 3),
    _define_square("logdet", near_identity, 2 / 3, reference="np.linalg.slogdet(data)[1]"),
)

_PRODUCT_INPUTS = make_sizes(
    lambda m, n: {"data": Input((m, n), reflectors), "tau": Input((n,), reflector_scales)},
    (64, 16),
    (512, 64),
    (2048, 256),
)
_REFLECTION_INPUTS = make_sizes(
    lambda n: {"data": Input((n, n), reflectors), "tau": Input((n,), reflector_scales), "rhs": Input((n, n // 8))},
    32,
    256,
    1024,
)
_PIVOT_INPUTS = make_sizes(
    lambda n: {"data": Input((n, n)), "pivots": Input((n,), random_pivots, "int32")}, *DIRECT_SIDES
)

_FACTORISATION_OPERATORS = (
    _define_square("linalg_cholesky", positive_definite, 1 / 3),
    _define_square("linalg_cholesky_ex", positive_definite, 1 / 3, reference="(np.linalg.cholesky(data), np.int32(0))"),
    _define_batched("linalg_cholesky", positive_definite, 1 / 3),
    _define_matrix("linalg_qr", TALL_INPUTS, 4.0),
    _define_matrix("geqrf", TALL_INPUTS, 2.0, reference="ref.geqrf", differentiable=False),
    _define_matrix(
        "linalg_householder_product", _PRODUCT_INPUTS, 2.0, reference="ref.householder_product", aliases=("orgqr",)
    ),
    _define_matrix(
        "ormqr",
        _REFLECTION_INPUTS,
        lambda call: 4.0 * math.prod(call.shapes["data"]) * call.shapes["rhs"][1],
        reference="ref.householder_product(data, tau) @ rhs",
    ),
    _define_square("linalg_lu", normal, 2 / 3, reference="scipy.linalg.lu"),
    _define_square("linalg_lu_factor", normal, 2 / 3, reference="ref.lu_factor"),
    _define_square("linalg_lu_factor_ex", normal, 2 / 3, reference="(*ref.lu_factor(data), np.int32(0))"),
    _define_matrix("lu_unpack", _PIVOT_INPUTS, lambda call: 0.0, reference="ref.lu_unpack"),
    _define_square(
        "linalg_ldl_factor",
        heavy_symmetric,
        1 / 3,
        reference="ref.ldl_factor",
        checked="(np.tril(out[0]), out[1])",
        differentiable=False,
    ),
)

_SPECTRAL_OPERATORS = (
    _define_iterative(
        "linalg_svd",
        normal,
        22.0,
        reference="np.linalg.svd(data, full_matrices=False)",
        torch="torch.linalg.svd(data, full_matrices=False)",
        # the sign of singular vectors is arbitrary: compare U S V and the orthogonality of U and V instead
        checked="(out[1], (out[0] * out[1]) @ out[2], out[0].T @ out[0], out[2] @ out[2].T)",
        differentiable=False,
    ),
    _define_iterative("linalg_svdvals", normal, 8 / 3, reference="np.linalg.svd(data, compute_uv=False)"),
    _define_iterative(
        "linalg_eigh",
        symmetric,
        9.0,
        checked="(out[0], (out[1] * out[0]) @ out[1].T, out[1].T @ out[1])",
        differentiable=False,
    ),
    _define_iterative("linalg_eigvalsh", symmetric, 4 / 3),
    _define_iterative(
        "linalg_eig",
        normal,
        25.0,
        # the order of eigenvalues and the phase of eigenvectors are arbitrary, so gradients cannot be compared
        checked="(np.sort(np.abs(out[0])), np.abs(i['data'] @ out[1] - out[1] * out[0]) + 1, "
        "np.sum(np.abs(out[1]) ** 2, axis=0))",
        differentiable=False,
    ),
    _define_iterative(
        "linalg_eigvals", normal, 10.0, checked="(np.sort(np.abs(out[0])), np.sort(out[0].real))", differentiable=False
    ),
)

_CROSS_INPUTS = make_sizes(lambda n: {"lhs": Input((n, 3)), "rhs": Input((n, 3))}, 1024, 1 << 18, 1 << 22)
_POINT_INPUTS = make_sizes(lambda n: {"data": Input((n,), uniform(0.5, 1.0))}, 512, 1 << 17, 1 << 20)

_VECTOR_OPERATORS = (
    _define_matrix("linalg_cross", _CROSS_INPUTS, count_per_output(3.0), reference="np.cross", aliases=("cross",)),
    _define_matrix(
        "linalg_vander",
        _POINT_INPUTS,
        count_per_output(),
        reference="np.vander(data, n, increasing=True)",
        torch="torch.linalg.vander(data, N=n)",
        attributes={"n": 8},
    ),
)

_PSEUDO_INPUTS = make_sizes(lambda m, n: {"data": Input((m, n))}, (32, 16), (256, 64), (1024, 256))
_TENSOR_INPUTS = make_sizes(lambda n: {"data": Input((n, n, n * n), tensor_of_matrix)}, 4, 16, 32)

_INVERSE_OPERATORS = (
    _define_square("linalg_inv", well_conditioned, 2.0, aliases=("inverse",)),
    _define_square("linalg_inv_ex", well_conditioned, 2.0, reference="(np.linalg.inv(data), np.int32(0))"),
    _define_batched("linalg_inv", well_conditioned, 2.0),
    _define_matrix("linalg_pinv", _PSEUDO_INPUTS, 14.0, aliases=("pinverse",)),
    _define_square("cholesky_inverse", heavy_lower, 2 / 3, reference="np.linalg.inv(data @ data.T)"),
    _define_matrix(
        "linalg_tensorinv", _TENSOR_INPUTS, lambda call: 2.0 * call.shapes["data"][-1] ** 3, attributes={"ind": 2}
    ),
    # the fifth power takes three matrix products of 2 n^3 FLOPs
    _define_square("linalg_matrix_power", near_identity, 6.0, attributes={"n": 5}),
    _define_iterative("linalg_matrix_exp", near_identity, lambda call: 0.0, reference="scipy.linalg.expm"),
)


def _make_system(draw: Draw, pivots: Draw | None = None) -> Sizes:
    """Make an n x n matrix, its `pivots` if given, and n / 8 right-hand sides `rhs`."""

    def build_inputs(n: int) -> dict[str, Input]:
        others = {} if pivots is None else {"pivots": Input((n,), pivots, "int32")}
        return {"data": Input((n, n), draw), **others, "rhs": Input((n, n // 8))}

    return make_sizes(build_inputs, *DIRECT_SIDES)


def _count_solve_flops(factor: float, per_side: float = 2.0) -> CountFunction:
    """Return a function that counts `factor` n^3 FLOPs for a factorisation and `per_side` n^2 per right-hand side."""

    def count_flops(call: OperatorCall) -> float:
        return _count_cubic_flops(factor)(call) + per_side * math.prod(call.shapes["rhs"]) * call.shapes["rhs"][-2]

    return count_flops


_SYSTEM_INPUTS = _make_system(well_conditioned)
_SYSTEM_BATCH_INPUTS = make_sizes(
    lambda count, n: {"data": Input((count, n, n), well_conditioned), "rhs": Input((count, n, 2))}, *BATCH_SCALES
)
_TALL_SYSTEM_INPUTS = make_sizes(lambda m, n: {"data": Input((m, n)), "rhs": Input((m, n // 4))}, *TALL_SCALES)
_TENSOR_SYSTEM_INPUTS = make_sizes(
    lambda n: {"data": Input((n, n, n * n), tensor_of_matrix), "rhs": Input((n, n))}, 4, 16, 32
)

_SOLVE_OPERATORS = (
    _define_matrix("linalg_solve", _SYSTEM_INPUTS, _count_solve_flops(2 / 3)),
    _define_matrix(
        "linalg_solve_ex",
        _SYSTEM_INPUTS,
        _count_solve_flops(2 / 3),
        reference="(np.linalg.solve(data, rhs), np.int32(0))",
    ),
    _define_matrix("linalg_solve_batched", _SYSTEM_BATCH_INPUTS, _count_solve_flops(2 / 3), function="linalg_solve"),
    _define_matrix(
        "linalg_solve_triangular",
        _make_system(heavy_upper),
        _count_solve_flops(0.0, 1.0),
        reference="scipy.linalg.solve_triangular",
        torch="torch.linalg.solve_triangular(data, rhs, upper=True)",
    ),
    _define_matrix(
        "triangular_solve",
        _make_system(heavy_lower),
        _count_solve_flops(0.0, 1.0),
        reference="scipy.linalg.solve_triangular(data, rhs, lower=True)",
        torch="torch.triangular_solve(rhs, data, upper=False)[0]",
    ),
    _define_matrix(
        "cholesky_solve",
        _make_system(heavy_lower),
        _count_solve_flops(0.0),
        reference="np.linalg.solve(data @ data.T, rhs)",
        torch="torch.cholesky_solve(rhs, data)",
    ),
    _define_matrix(
        "linalg_lu_solve", _make_system(near_identity, random_pivots), _count_solve_flops(0.0), reference="ref.lu_solve"
    ),
    _define_matrix(
        "linalg_ldl_solve",
        _make_system(heavy_lower, identity_pivots),
        _count_solve_flops(0.0),
        reference="ref.ldl_solve(data, rhs)",
        differentiable=False,
    ),
    _define_matrix(
        "linalg_lstsq",
        _TALL_SYSTEM_INPUTS,
        2.0,
        reference="np.linalg.lstsq(data, rhs)[0]",
        torch="torch.linalg.lstsq(data, rhs).solution",
    ),
    _define_matrix("linalg_tensorsolve", _TENSOR_SYSTEM_INPUTS, lambda call: 2 / 3 * call.shapes["data"][-1] ** 3),
)

OPERATORS = (
    *_NORM_OPERATORS,
    *_FACTORISATION_OPERATORS,
    *_SPECTRAL_OPERATORS,
    *_VECTOR_OPERATORS,
    *_INVERSE_OPERATORS,
    *_SOLVE_OPERATORS,
)
