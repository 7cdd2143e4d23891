"""Linear algebra: norms, determinants, factorisations, eigenvalues, inverses and solutions of linear systems."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from tessera.operators.catalogue.families import WIDE_DTYPES, Sizes, define_operator
from tessera.operators.draws import Draw, normal, positive_definite, symmetric, uniform, well_conditioned
from tessera.operators.operator import Input, Operator, OperatorCall, make_sizes
from tessera.operators.work import CountFunction, count_no_bytes, count_per_input, count_per_output

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


def _count_cubic_flops(times: float) -> CountFunction:
    """Return a function that counts `times` m n^2 FLOPs for each matrix of m rows and n columns."""

    def count_flops(call: OperatorCall) -> float:
        *many, rows, columns = call.shapes["data"]
        return times * math.prod(many) * rows * columns**2

    return count_flops


def _define_matrix(
    name: str,
    sizes: Sizes,
    flops: float | CountFunction,
    *,
    function: str = "",
    torch: str = "",
    reference: str = "",
    **others: Any,
) -> Operator:
    """Define an operator of linear algebra.

    `function` is its name in torch and NumPy (default: `name`); it is called with the inputs and the attributes.
    `torch` and `reference` replace the whole expression. `flops` is a function, or a factor of m n^2 for each matrix of
    m rows and n columns; FLOPs are those of the textbook algorithm (Golub and Van Loan), with its typical number of
    iterations.
    """
    arguments = ", ".join([*sizes["small"], *others.get("attributes", ())])
    call = f"{(function or name).replace('linalg_', 'linalg.')}({arguments})"
    torch, reference = torch or f"torch.{call}", reference or f"np.{call}"
    count = flops if callable(flops) else _count_cubic_flops(flops)
    return define_operator("linear_algebra", name, torch, reference, sizes, flops=count, **WIDE_DTYPES, **others)


TALL_INPUTS = make_sizes(lambda m, n: {"data": Input(shape=(m, n))}, *TALL_SCALES)

_NORM_OPERATORS = (
    _define_matrix("linalg_norm", _make_square(normal, NORM_SIDES), count_per_input("data", 2.0)),
    _define_matrix(
        "linalg_vector_norm",
        _make_square(normal, NORM_SIDES),
        count_per_input("data", 2.0),
        reference="np.linalg.norm(data, ord=ord, axis=dim)",
        attributes={"ord": 2, "dim": -1},
    ),
    *(
        _define_matrix(
            f"linalg_matrix_norm{suffix}",
            sizes,
            flops,
            reference="np.linalg.norm(data, ord=ord, axis=(-2, -1))",
            torch="torch.linalg.matrix_norm(data, ord)",
            attributes={"ord": order},
        )
        for suffix, order, sizes, flops in (
            ("", "fro", _make_square(normal, NORM_SIDES), count_per_input("data", 2.0)),
            ("_one", 1, _make_square(normal, NORM_SIDES), count_per_input("data", 1.0)),
            ("_nuclear", "nuc", _make_square(normal, ITERATIVE_SIDES), 8 / 3),
            ("_spectral", 2, _make_square(normal, ITERATIVE_SIDES), 8 / 3),
        )
    ),
    _define_matrix("linalg_cond", _make_square(well_conditioned, ITERATIVE_SIDES), 8 / 3),
    _define_matrix(
        "linalg_matrix_rank",
        _make_square(low_rank, ITERATIVE_SIDES),
        8 / 3,
        reference="np.linalg.matrix_rank(data, rtol=rtol)",
        torch="torch.linalg.matrix_rank(data, rtol=rtol)",
        attributes={"rtol": 1e-3},
        differentiable=False,
    ),
    _define_matrix(
        "trace",
        _make_square(uniform(0.5, 1.5), NORM_SIDES),
        lambda call: call.shapes["data"][0],
        moved=lambda call: call.read["data"] / call.shapes["data"][0],  # reads only the diagonal
    ),
    _define_matrix(
        "linalg_diagonal",
        _make_square(normal, NORM_SIDES),
        lambda call: 0.0,
        reference="np.diagonal(data)",
        moved=count_no_bytes,
    ),
    _define_matrix("linalg_det", _make_square(near_identity), 2 / 3),
    _define_matrix("linalg_det_batched", _make_batch(near_identity), 2 / 3, function="linalg_det"),
    _define_matrix("linalg_slogdet", _make_square(near_identity), 2 / 3),
    _define_matrix("logdet", _make_square(near_identity), 2 / 3, reference="np.linalg.slogdet(data)[1]"),
)

_FACTORISATION_OPERATORS = (
    _define_matrix("linalg_cholesky", _make_square(positive_definite), 1 / 3),
    _define_matrix(
        "linalg_cholesky_ex",
        _make_square(positive_definite),
        1 / 3,
        reference="(np.linalg.cholesky(data), np.int32(0))",
    ),
    _define_matrix("linalg_cholesky_batched", _make_batch(positive_definite), 1 / 3, function="linalg_cholesky"),
    _define_matrix("linalg_qr", TALL_INPUTS, 4.0),
    _define_matrix("geqrf", TALL_INPUTS, 2.0, reference="ref.geqrf(data)", differentiable=False),
    _define_matrix(
        "linalg_householder_product",
        make_sizes(
            lambda m, n: {
                "data": Input(shape=(m, n), draw=reflectors),
                "tau": Input(shape=(n,), draw=uniform(1.5, 1.9)),
            },
            (64, 16),
            (512, 64),
            (2048, 256),
        ),
        2.0,
        reference="ref.householder_product(data, tau)",
        aliases=("orgqr",),
    ),
    _define_matrix(
        "ormqr",
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
        reference="ref.householder_product(data, tau) @ rhs",
    ),
    _define_matrix("linalg_lu", _make_square(normal), 2 / 3, reference="scipy.linalg.lu(data)"),
    _define_matrix("linalg_lu_factor", _make_square(normal), 2 / 3, reference="ref.lu_factor(data)"),
    _define_matrix("linalg_lu_factor_ex", _make_square(normal), 2 / 3, reference="(*ref.lu_factor(data), np.int32(0))"),
    _define_matrix(
        "lu_unpack",
        make_sizes(lambda n: {"data": Input(shape=(n, n)), "pivots": _make_pivots(n)}, *DIRECT_SIDES),
        lambda call: 0.0,
        reference="ref.lu_unpack(data, pivots)",
    ),
    _define_matrix(
        "linalg_ldl_factor",
        _make_square(heavy_symmetric),
        1 / 3,
        reference="ref.ldl_factor(data)",
        checked="(np.tril(out[0]), out[1])",
        differentiable=False,
    ),
)

_SPECTRAL_OPERATORS = (
    _define_matrix(
        "linalg_svd",
        _make_square(normal, ITERATIVE_SIDES),
        22.0,
        reference="np.linalg.svd(data, full_matrices=False)",
        torch="torch.linalg.svd(data, full_matrices=False)",
        # the sign of singular vectors is arbitrary: compare U S V and the orthogonality of U and V instead
        checked="(out[1], (out[0] * out[1]) @ out[2], out[0].T @ out[0], out[2] @ out[2].T)",
        differentiable=False,
    ),
    _define_matrix(
        "linalg_svdvals",
        _make_square(normal, ITERATIVE_SIDES),
        8 / 3,
        reference="np.linalg.svd(data, compute_uv=False)",
    ),
    _define_matrix(
        "linalg_eigh",
        _make_square(symmetric, ITERATIVE_SIDES),
        9.0,
        checked="(out[0], (out[1] * out[0]) @ out[1].T, out[1].T @ out[1])",
        differentiable=False,
    ),
    _define_matrix("linalg_eigvalsh", _make_square(symmetric, ITERATIVE_SIDES), 4 / 3),
    _define_matrix(
        "linalg_eig",
        _make_square(normal, ITERATIVE_SIDES),
        25.0,
        # the order of eigenvalues and the phase of eigenvectors are arbitrary, so gradients cannot be compared
        checked="(np.sort(np.abs(out[0])), np.abs(i['data'] @ out[1] - out[1] * out[0]) + 1, "
        "np.sum(np.abs(out[1]) ** 2, axis=0))",
        differentiable=False,
    ),
    _define_matrix(
        "linalg_eigvals",
        _make_square(normal, ITERATIVE_SIDES),
        10.0,
        checked="(np.sort(np.abs(out[0])), np.sort(out[0].real))",
        differentiable=False,
    ),
)

_VECTOR_OPERATORS = (
    _define_matrix(
        "linalg_cross",
        make_sizes(lambda n: {"lhs": Input(shape=(n, 3)), "rhs": Input(shape=(n, 3))}, 1024, 1 << 18, 1 << 22),
        count_per_output(3.0),
        reference="np.cross(lhs, rhs)",
        aliases=("cross",),
    ),
    _define_matrix(
        "linalg_vander",
        make_sizes(lambda n: {"data": Input(shape=(n,), draw=uniform(0.5, 1.0))}, 512, 1 << 17, 1 << 20),
        count_per_output(),
        reference="np.vander(data, n, increasing=True)",
        torch="torch.linalg.vander(data, N=n)",
        attributes={"n": 8},
    ),
)


def _make_system(draw: Draw, **extra_inputs: Callable[[int], Input]) -> Mapping[str, Mapping[str, Input]]:
    """Make an n x n matrix, `extra_inputs`, and n / 8 right-hand sides `rhs`."""

    def build_inputs(n: int) -> dict[str, Input]:
        others = {name: make(n) for name, make in extra_inputs.items()}
        return {"data": Input(shape=(n, n), draw=draw), **others, "rhs": Input(shape=(n, n // 8))}

    return make_sizes(build_inputs, *DIRECT_SIDES)


def _count_solve_flops(factor: float, per_side: float = 2.0) -> CountFunction:
    """Return a function that counts `factor` n^3 FLOPs for a factorisation and `per_side` n^2 per right-hand side."""

    def count_flops(call: OperatorCall) -> float:
        return _count_cubic_flops(factor)(call) + per_side * math.prod(call.shapes["rhs"]) * call.shapes["rhs"][-2]

    return count_flops


_INVERSE_OPERATORS = (
    _define_matrix("linalg_inv", _make_square(well_conditioned), 2.0, aliases=("inverse",)),
    _define_matrix(
        "linalg_inv_ex", _make_square(well_conditioned), 2.0, reference="(np.linalg.inv(data), np.int32(0))"
    ),
    _define_matrix("linalg_inv_batched", _make_batch(well_conditioned), 2.0, function="linalg_inv"),
    _define_matrix(
        "linalg_pinv",
        make_sizes(lambda m, n: {"data": Input(shape=(m, n))}, (32, 16), (256, 64), (1024, 256)),
        14.0,
        aliases=("pinverse",),
    ),
    _define_matrix("cholesky_inverse", _make_square(heavy_lower), 2 / 3, reference="np.linalg.inv(data @ data.T)"),
    _define_matrix(
        "linalg_tensorinv",
        make_sizes(lambda n: {"data": Input(shape=(n, n, n * n), draw=tensor_of_matrix)}, 4, 16, 32),
        lambda call: 2.0 * call.shapes["data"][-1] ** 3,
        attributes={"ind": 2},
    ),
    # the fifth power takes three matrix products of 2 n^3 FLOPs
    _define_matrix("linalg_matrix_power", _make_square(near_identity), 6.0, attributes={"n": 5}),
    _define_matrix(
        "linalg_matrix_exp",
        _make_square(near_identity, ITERATIVE_SIDES),
        lambda call: 0.0,
        reference="scipy.linalg.expm(data)",
    ),
)

_SOLVE_OPERATORS = (
    _define_matrix("linalg_solve", _make_system(well_conditioned), _count_solve_flops(2 / 3)),
    _define_matrix(
        "linalg_solve_ex",
        _make_system(well_conditioned),
        _count_solve_flops(2 / 3),
        reference="(np.linalg.solve(data, rhs), np.int32(0))",
    ),
    _define_matrix(
        "linalg_solve_batched",
        make_sizes(
            lambda count, n: {
                "data": Input(shape=(count, n, n), draw=well_conditioned),
                "rhs": Input(shape=(count, n, 2)),
            },
            *BATCH_SCALES,
        ),
        _count_solve_flops(2 / 3),
        function="linalg_solve",
    ),
    _define_matrix(
        "linalg_solve_triangular",
        _make_system(heavy_upper),
        _count_solve_flops(0.0, 1.0),
        reference="scipy.linalg.solve_triangular(data, rhs)",
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
        "linalg_lu_solve",
        _make_system(near_identity, pivots=_make_pivots),
        _count_solve_flops(0.0),
        reference="ref.lu_solve(data, pivots, rhs)",
    ),
    _define_matrix(
        "linalg_ldl_solve",
        _make_system(heavy_lower, pivots=_make_identity_pivots),
        _count_solve_flops(0.0),
        reference="ref.ldl_solve(data, rhs)",
        differentiable=False,
    ),
    _define_matrix(
        "linalg_lstsq",
        make_sizes(lambda m, n: {"data": Input(shape=(m, n)), "rhs": Input(shape=(m, n // 4))}, *TALL_SCALES),
        2.0,
        reference="np.linalg.lstsq(data, rhs)[0]",
        torch="torch.linalg.lstsq(data, rhs).solution",
    ),
    _define_matrix(
        "linalg_tensorsolve",
        make_sizes(
            lambda n: {"data": Input(shape=(n, n, n * n), draw=tensor_of_matrix), "rhs": Input(shape=(n, n))}, 4, 16, 32
        ),
        lambda call: 2 / 3 * call.shapes["data"][-1] ** 3,
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
