"""Linear algebra: norms, determinants, factorisations, eigenvalues, inverses and solutions of linear systems."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from tessera.operators.catalogue.families import WIDE_DTYPES, Sizes, define_operator
from tessera.operators.draws import Draw, normal, positive_definite, symmetric, uniform, well_conditioned
from tessera.operators.operator import Input, Operator, OperatorCall, make_sizes
from tessera.operators.work import count_no_bytes, count_per_input, count_per_output

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
# a well-conditioned matrix, reshaped to a tensor with more dims
tensor_of_matrix = Draw(f"(lambda shape: {well_conditioned.expression})(shape[-1:] * 2).reshape(shape)")


def _make_pivots(n: int) -> Input:
    """Make random pivots of a factorisation: for each row, the one-based index of the same or a later row."""
    return Input(shape=(n,), kind="int32", draw=Draw("rng.integers(np.arange(1, shape[0] + 1), shape[0] + 1)"))


def _make_identity_pivots(n: int) -> Input:
    """Make the pivots of a factorisation without row exchanges."""
    return Input(shape=(n,), kind="int32", draw=Draw("np.arange(1, shape[0] + 1)"))


# matrix sides for operators that read every element once (NORM_SIDES), take O(n^3) steps
# (DIRECT_SIDES), or iterate (ITERATIVE_SIDES)
NORM_SIDES = (64, 1024, 4096)
DIRECT_SIDES = (32, 512, 2048)
ITERATIVE_SIDES = (16, 128, 512)
TALL_SCALES = ((64, 16), (512, 128), (2048, 512))
# many small matrices, (count, side): dominated by the loop over matrices
BATCH_SCALES = ((64, 8), (4096, 8), (65536, 8))


def _make_square(draw: Draw, sides: tuple[int, int, int] = DIRECT_SIDES) -> Sizes:
    return make_sizes(lambda n: {"data": Input(shape=(n, n), draw=draw)}, *sides)


def _make_batch(draw: Draw) -> Sizes:
    return make_sizes(lambda count, n: {"data": Input(shape=(count, n, n), draw=draw)}, *BATCH_SCALES)


def _count_cubic_flops(times: float) -> Callable[[OperatorCall], float]:
    """Return a function that counts `times` m n^2 FLOPs for each matrix of m rows and n columns."""

    def count_flops(call: OperatorCall) -> float:
        *many, rows, columns = call.shapes["data"]
        return times * math.prod(many) * rows * columns**2

    return count_flops


def _define_matrix_operator(
    name: str, reference: str, sizes: Sizes, flops: Any, torch: str = "", **others: Any
) -> Operator:
    """Define an operator on one matrix; its torch function has the operator's name unless `torch` is set.

    FLOPs are counted for the textbook algorithm (Golub and Van Loan), with its typical number of iterations.
    """
    call = torch or f"torch.{name.replace('linalg_', 'linalg.')}(data)"
    return define_operator("linear_algebra", name, call, reference, sizes, flops=flops, **WIDE_DTYPES, **others)


TALL_INPUTS = make_sizes(lambda m, n: {"data": Input(shape=(m, n))}, *TALL_SCALES)

_NORM_OPERATORS = (
    _define_matrix_operator(
        "linalg_norm", "np.linalg.norm(data)", _make_square(normal, NORM_SIDES), count_per_input("data", 2.0)
    ),
    _define_matrix_operator(
        "linalg_vector_norm",
        "np.linalg.norm(data, ord=ord, axis=dim)",
        _make_square(normal, NORM_SIDES),
        count_per_input("data", 2.0),
        "torch.linalg.vector_norm(data, ord, dim)",
        attributes={"ord": 2, "dim": -1},
    ),
    *(
        _define_matrix_operator(
            f"linalg_matrix_norm{suffix}",
            "np.linalg.norm(data, ord=ord, axis=(-2, -1))",
            sizes,
            flops,
            "torch.linalg.matrix_norm(data, ord)",
            attributes={"ord": order},
        )
        for suffix, order, sizes, flops in (
            ("", "fro", _make_square(normal, NORM_SIDES), count_per_input("data", 2.0)),
            ("_one", 1, _make_square(normal, NORM_SIDES), count_per_input("data", 1.0)),
            ("_nuclear", "nuc", _make_square(normal, ITERATIVE_SIDES), _count_cubic_flops(8 / 3)),
            ("_spectral", 2, _make_square(normal, ITERATIVE_SIDES), _count_cubic_flops(8 / 3)),
        )
    ),
    _define_matrix_operator(
        "linalg_cond",
        "np.linalg.cond(data)",
        _make_square(well_conditioned, ITERATIVE_SIDES),
        _count_cubic_flops(8 / 3),
    ),
    _define_matrix_operator(
        "linalg_matrix_rank",
        "np.linalg.matrix_rank(data, rtol=rtol)",
        _make_square(low_rank, ITERATIVE_SIDES),
        _count_cubic_flops(8 / 3),
        "torch.linalg.matrix_rank(data, rtol=rtol)",
        attributes={"rtol": 1e-3},
        differentiable=False,
    ),
    _define_matrix_operator(
        "trace",
        "np.trace(data)",
        _make_square(uniform(0.5, 1.5), NORM_SIDES),
        lambda call: call.shapes["data"][0],
        moved=lambda call: call.read["data"] / call.shapes["data"][0],  # reads only the diagonal
    ),
    _define_matrix_operator(
        "linalg_diagonal", "np.diagonal(data)", _make_square(normal, NORM_SIDES), lambda call: 0.0, moved=count_no_bytes
    ),
    _define_matrix_operator(
        "linalg_det", "np.linalg.det(data)", _make_square(near_identity), _count_cubic_flops(2 / 3)
    ),
    _define_matrix_operator(
        "linalg_det_batched",
        "np.linalg.det(data)",
        _make_batch(near_identity),
        _count_cubic_flops(2 / 3),
        "torch.linalg.det(data)",
    ),
    _define_matrix_operator(
        "linalg_slogdet", "np.linalg.slogdet(data)", _make_square(near_identity), _count_cubic_flops(2 / 3)
    ),
    _define_matrix_operator(
        "logdet", "np.linalg.slogdet(data)[1]", _make_square(near_identity), _count_cubic_flops(2 / 3)
    ),
)

_FACTORISATION_OPERATORS = (
    _define_matrix_operator(
        "linalg_cholesky", "np.linalg.cholesky(data)", _make_square(positive_definite), _count_cubic_flops(1 / 3)
    ),
    _define_matrix_operator(
        "linalg_cholesky_ex",
        "(np.linalg.cholesky(data), np.int32(0))",
        _make_square(positive_definite),
        _count_cubic_flops(1 / 3),
    ),
    _define_matrix_operator(
        "linalg_cholesky_batched",
        "np.linalg.cholesky(data)",
        _make_batch(positive_definite),
        _count_cubic_flops(1 / 3),
        "torch.linalg.cholesky(data)",
    ),
    _define_matrix_operator("linalg_qr", "np.linalg.qr(data)", TALL_INPUTS, _count_cubic_flops(4.0)),
    _define_matrix_operator("geqrf", "ref.geqrf(data)", TALL_INPUTS, _count_cubic_flops(2.0), differentiable=False),
    _define_matrix_operator(
        "linalg_householder_product",
        "ref.householder_product(data, tau)",
        make_sizes(
            lambda m, n: {
                "data": Input(shape=(m, n), draw=reflectors),
                "tau": Input(shape=(n,), draw=uniform(1.5, 1.9)),
            },
            (64, 16),
            (512, 64),
            (2048, 256),
        ),
        _count_cubic_flops(2.0),
        "torch.linalg.householder_product(data, tau)",
        aliases=("orgqr",),
    ),
    _define_matrix_operator(
        "ormqr",
        "ref.householder_product(data, tau) @ rhs",
        make_sizes(
            lambda n: {
                "data": Input(shape=(n, n), draw=reflectors),
                "tau": Input(shape=(n,), draw=uniform(1.5, 1.9)),
                "rhs": Input(shape=(n, n // 8)),
            },
            32,
            256,
            1024,
        ),
        lambda call: 4.0 * math.prod(call.shapes["data"]) * call.shapes["rhs"][1],
        "torch.ormqr(data, tau, rhs)",
    ),
    _define_matrix_operator("linalg_lu", "scipy.linalg.lu(data)", _make_square(normal), _count_cubic_flops(2 / 3)),
    _define_matrix_operator("linalg_lu_factor", "ref.lu_factor(data)", _make_square(normal), _count_cubic_flops(2 / 3)),
    _define_matrix_operator(
        "linalg_lu_factor_ex", "(*ref.lu_factor(data), np.int32(0))", _make_square(normal), _count_cubic_flops(2 / 3)
    ),
    _define_matrix_operator(
        "lu_unpack",
        "ref.lu_unpack(data, pivots)",
        make_sizes(lambda n: {"data": Input(shape=(n, n)), "pivots": _make_pivots(n)}, *DIRECT_SIDES),
        lambda call: 0.0,
        "torch.lu_unpack(data, pivots)",
    ),
    _define_matrix_operator(
        "linalg_ldl_factor",
        "ref.ldl_factor(data)",
        _make_square(heavy_symmetric),
        _count_cubic_flops(1 / 3),
        checked="(np.tril(out[0]), out[1])",
        differentiable=False,
    ),
)

_SPECTRAL_OPERATORS = (
    _define_matrix_operator(
        "linalg_svd",
        "np.linalg.svd(data, full_matrices=False)",
        _make_square(normal, ITERATIVE_SIDES),
        _count_cubic_flops(22.0),
        "torch.linalg.svd(data, full_matrices=False)",
        # the sign of singular vectors is arbitrary: compare U S V and the orthogonality of U and V instead
        checked="(out[1], (out[0] * out[1]) @ out[2], out[0].T @ out[0], out[2] @ out[2].T)",
        differentiable=False,
    ),
    _define_matrix_operator(
        "linalg_svdvals",
        "np.linalg.svd(data, compute_uv=False)",
        _make_square(normal, ITERATIVE_SIDES),
        _count_cubic_flops(8 / 3),
    ),
    _define_matrix_operator(
        "linalg_eigh",
        "np.linalg.eigh(data)",
        _make_square(symmetric, ITERATIVE_SIDES),
        _count_cubic_flops(9.0),
        checked="(out[0], (out[1] * out[0]) @ out[1].T, out[1].T @ out[1])",
        differentiable=False,
    ),
    _define_matrix_operator(
        "linalg_eigvalsh",
        "np.linalg.eigvalsh(data)",
        _make_square(symmetric, ITERATIVE_SIDES),
        _count_cubic_flops(4 / 3),
    ),
    _define_matrix_operator(
        "linalg_eig",
        "np.linalg.eig(data)",
        _make_square(normal, ITERATIVE_SIDES),
        _count_cubic_flops(25.0),
        # the order of eigenvalues and the phase of eigenvectors are arbitrary, so gradients cannot be compared
        checked="(np.sort(np.abs(out[0])), np.abs(i['data'] @ out[1] - out[1] * out[0]) + 1, "
        "np.sum(np.abs(out[1]) ** 2, axis=0))",
        differentiable=False,
    ),
    _define_matrix_operator(
        "linalg_eigvals",
        "np.linalg.eigvals(data)",
        _make_square(normal, ITERATIVE_SIDES),
        _count_cubic_flops(10.0),
        checked="(np.sort(np.abs(out[0])), np.sort(out[0].real))",
        differentiable=False,
    ),
)

_VECTOR_OPERATORS = (
    _define_matrix_operator(
        "linalg_cross",
        "np.cross(lhs, rhs)",
        make_sizes(lambda n: {"lhs": Input(shape=(n, 3)), "rhs": Input(shape=(n, 3))}, 1024, 1 << 18, 1 << 22),
        count_per_output(3.0),
        "torch.linalg.cross(lhs, rhs)",
        aliases=("cross",),
    ),
    _define_matrix_operator(
        "linalg_vander",
        "np.vander(data, n, increasing=True)",
        make_sizes(lambda n: {"data": Input(shape=(n,), draw=uniform(0.5, 1.0))}, 512, 1 << 17, 1 << 20),
        count_per_output(),
        "torch.linalg.vander(data, N=n)",
        attributes={"n": 8},
    ),
)


def _make_system(draw: Draw, **extra_inputs: Callable[[int], Input]) -> Mapping[str, Mapping[str, Input]]:
    """Make an n x n matrix, `extra_inputs`, and n / 8 right-hand sides `rhs`."""

    def build_inputs(n: int) -> dict[str, Input]:
        others = {name: make(n) for name, make in extra_inputs.items()}
        return {"data": Input(shape=(n, n), draw=draw), **others, "rhs": Input(shape=(n, n // 8))}

    return make_sizes(build_inputs, *DIRECT_SIDES)


def _count_solve_flops(factor: float, per_side: float = 2.0) -> Callable[[OperatorCall], float]:
    """Return a function that counts `factor` n^3 FLOPs for a factorisation and `per_side` n^2 per right-hand side."""

    def count_flops(call: OperatorCall) -> float:
        return _count_cubic_flops(factor)(call) + per_side * math.prod(call.shapes["rhs"]) * call.shapes["rhs"][-2]

    return count_flops


_INVERSE_OPERATORS = (
    _define_matrix_operator(
        "linalg_inv",
        "np.linalg.inv(data)",
        _make_square(well_conditioned),
        _count_cubic_flops(2.0),
        aliases=("inverse",),
    ),
    _define_matrix_operator(
        "linalg_inv_ex", "(np.linalg.inv(data), np.int32(0))", _make_square(well_conditioned), _count_cubic_flops(2.0)
    ),
    _define_matrix_operator(
        "linalg_inv_batched",
        "np.linalg.inv(data)",
        _make_batch(well_conditioned),
        _count_cubic_flops(2.0),
        "torch.linalg.inv(data)",
    ),
    _define_matrix_operator(
        "linalg_pinv",
        "np.linalg.pinv(data)",
        make_sizes(lambda m, n: {"data": Input(shape=(m, n))}, (32, 16), (256, 64), (1024, 256)),
        _count_cubic_flops(14.0),
        aliases=("pinverse",),
    ),
    _define_matrix_operator(
        "cholesky_inverse", "np.linalg.inv(data @ data.T)", _make_square(heavy_lower), _count_cubic_flops(2 / 3)
    ),
    _define_matrix_operator(
        "linalg_tensorinv",
        "np.linalg.tensorinv(data, ind)",
        make_sizes(lambda n: {"data": Input(shape=(n, n, n * n), draw=tensor_of_matrix)}, 4, 16, 32),
        lambda call: 2.0 * call.shapes["data"][-1] ** 3,
        "torch.linalg.tensorinv(data, ind)",
        attributes={"ind": 2},
    ),
    _define_matrix_operator(
        "linalg_matrix_power",
        "np.linalg.matrix_power(data, n)",
        _make_square(near_identity),
        _count_cubic_flops(6.0),  # the fifth power takes three matrix products of 2 n^3 FLOPs
        "torch.linalg.matrix_power(data, n)",
        attributes={"n": 5},
    ),
    _define_matrix_operator(
        "linalg_matrix_exp", "scipy.linalg.expm(data)", _make_square(near_identity, ITERATIVE_SIDES), lambda call: 0.0
    ),
)

_SOLVE_OPERATORS = (
    _define_matrix_operator(
        "linalg_solve",
        "np.linalg.solve(data, rhs)",
        _make_system(well_conditioned),
        _count_solve_flops(2 / 3),
        "torch.linalg.solve(data, rhs)",
    ),
    _define_matrix_operator(
        "linalg_solve_ex",
        "(np.linalg.solve(data, rhs), np.int32(0))",
        _make_system(well_conditioned),
        _count_solve_flops(2 / 3),
        "torch.linalg.solve_ex(data, rhs)",
    ),
    _define_matrix_operator(
        "linalg_solve_batched",
        "np.linalg.solve(data, rhs)",
        make_sizes(
            lambda count, n: {
                "data": Input(shape=(count, n, n), draw=well_conditioned),
                "rhs": Input(shape=(count, n, 2)),
            },
            *BATCH_SCALES,
        ),
        _count_solve_flops(2 / 3),
        "torch.linalg.solve(data, rhs)",
    ),
    _define_matrix_operator(
        "linalg_solve_triangular",
        "scipy.linalg.solve_triangular(data, rhs)",
        _make_system(heavy_upper),
        _count_solve_flops(0.0, 1.0),
        "torch.linalg.solve_triangular(data, rhs, upper=True)",
    ),
    _define_matrix_operator(
        "triangular_solve",
        "scipy.linalg.solve_triangular(data, rhs, lower=True)",
        _make_system(heavy_lower),
        _count_solve_flops(0.0, 1.0),
        "torch.triangular_solve(rhs, data, upper=False)[0]",
    ),
    _define_matrix_operator(
        "cholesky_solve",
        "np.linalg.solve(data @ data.T, rhs)",
        _make_system(heavy_lower),
        _count_solve_flops(0.0),
        "torch.cholesky_solve(rhs, data)",
    ),
    _define_matrix_operator(
        "linalg_lu_solve",
        "ref.lu_solve(data, pivots, rhs)",
        _make_system(near_identity, pivots=_make_pivots),
        _count_solve_flops(0.0),
        "torch.linalg.lu_solve(data, pivots, rhs)",
    ),
    _define_matrix_operator(
        "linalg_ldl_solve",
        "ref.ldl_solve(data, rhs)",
        _make_system(heavy_lower, pivots=_make_identity_pivots),
        _count_solve_flops(0.0),
        "torch.linalg.ldl_solve(data, pivots, rhs)",
        differentiable=False,
    ),
    _define_matrix_operator(
        "linalg_lstsq",
        "np.linalg.lstsq(data, rhs)[0]",
        make_sizes(lambda m, n: {"data": Input(shape=(m, n)), "rhs": Input(shape=(m, n // 4))}, *TALL_SCALES),
        _count_cubic_flops(2.0),
        "torch.linalg.lstsq(data, rhs).solution",
    ),
    _define_matrix_operator(
        "linalg_tensorsolve",
        "np.linalg.tensorsolve(data, rhs)",
        make_sizes(
            lambda n: {"data": Input(shape=(n, n, n * n), draw=tensor_of_matrix), "rhs": Input(shape=(n, n))}, 4, 16, 32
        ),
        lambda call: 2 / 3 * call.shapes["data"][-1] ** 3,
        "torch.linalg.tensorsolve(data, rhs)",
    ),
)


OPERATORS = (
    *_NORM_OPERATORS,
    *_FACTORISATION_OPERATORS,
    *_SPECTRAL_OPERATORS,
    *_VECTOR_OPERATORS,
    *_INVERSE_OPERATORS,
    *_SOLVE_OPERATORS,
)
