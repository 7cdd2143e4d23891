"""Linear algebra: norms, determinants, factorisations and spectra of matrices."""

from __future__ import annotations

import math

from tessera.operators.catalogue.matrices import heavy_symmetric, low_rank, near_identity, pivots, reflectors
from tessera.operators.catalogue.matrix_operator import DIRECT, ITERATIVE, READ, TALL, batch, cubed, linalg, square
from tessera.operators.draws import normal, positive_definite, symmetric, uniform, well_conditioned
from tessera.operators.operator import Input, by_size
from tessera.operators.work import nothing_moved, per_input, per_output

TALL_SIZES = by_size(lambda m, n: {"data": Input(shape=(m, n))}, *TALL)

_NORMS = (
    linalg("linalg_norm", "np.linalg.norm(data)", square(normal, READ), per_input("data", 2.0)),
    linalg(
        "linalg_vector_norm",
        "np.linalg.norm(data, ord=ord, axis=dim)",
        square(normal, READ),
        per_input("data", 2.0),
        "torch.linalg.vector_norm(data, ord, dim)",
        attributes={"ord": 2, "dim": -1},
    ),
    *(
        linalg(
            f"linalg_matrix_norm{suffix}",
            "np.linalg.norm(data, ord=ord, axis=(-2, -1))",
            sizes,
            flops,
            "torch.linalg.matrix_norm(data, ord)",
            attributes={"ord": order},
        )
        for suffix, order, sizes, flops in (
            ("", "fro", square(normal, READ), per_input("data", 2.0)),
            ("_one", 1, square(normal, READ), per_input("data", 1.0)),
            ("_nuclear", "nuc", square(normal, ITERATIVE), cubed(8 / 3)),
            ("_spectral", 2, square(normal, ITERATIVE), cubed(8 / 3)),
        )
    ),
    linalg("linalg_cond", "np.linalg.cond(data)", square(well_conditioned, ITERATIVE), cubed(8 / 3)),
    linalg(
        "linalg_matrix_rank",
        "np.linalg.matrix_rank(data, rtol=rtol)",
        square(low_rank, ITERATIVE),
        cubed(8 / 3),
        "torch.linalg.matrix_rank(data, rtol=rtol)",
        attributes={"rtol": 1e-3},
        differentiable=False,
    ),
    linalg(
        "trace",
        "np.trace(data)",
        square(uniform(0.5, 1.5), READ),
        lambda call: call.shapes["data"][0],
        moved=lambda call: call.read["data"] / call.shapes["data"][0],  # the diagonal alone
    ),
    linalg("linalg_diagonal", "np.diagonal(data)", square(normal, READ), lambda call: 0.0, moved=nothing_moved),
    linalg("linalg_det", "np.linalg.det(data)", square(near_identity), cubed(2 / 3)),
    linalg("linalg_det_batched", "np.linalg.det(data)", batch(near_identity), cubed(2 / 3), "torch.linalg.det(data)"),
    linalg("linalg_slogdet", "np.linalg.slogdet(data)", square(near_identity), cubed(2 / 3)),
    linalg("logdet", "np.linalg.slogdet(data)[1]", square(near_identity), cubed(2 / 3)),
)

_FACTORS = (
    linalg("linalg_cholesky", "np.linalg.cholesky(data)", square(positive_definite), cubed(1 / 3)),
    linalg("linalg_cholesky_ex", "(np.linalg.cholesky(data), np.int32(0))", square(positive_definite), cubed(1 / 3)),
    linalg(
        "linalg_cholesky_batched",
        "np.linalg.cholesky(data)",
        batch(positive_definite),
        cubed(1 / 3),
        "torch.linalg.cholesky(data)",
    ),
    linalg("linalg_qr", "np.linalg.qr(data)", TALL_SIZES, cubed(4.0)),
    linalg("geqrf", "ref.geqrf(data)", TALL_SIZES, cubed(2.0), differentiable=False),
    linalg(
        "linalg_householder_product",
        "ref.householder_product(data, tau)",
        by_size(
            lambda m, n: {
                "data": Input(shape=(m, n), draw=reflectors),
                "tau": Input(shape=(n,), draw=uniform(1.5, 1.9)),
            },
            (64, 16),
            (512, 64),
            (2048, 256),
        ),
        cubed(2.0),
        "torch.linalg.householder_product(data, tau)",
        aliases=("orgqr",),
    ),
    linalg(
        "ormqr",
        "ref.householder_product(data, tau) @ rhs",
        by_size(
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
    linalg("linalg_lu", "scipy.linalg.lu(data)", square(normal), cubed(2 / 3)),
    linalg("linalg_lu_factor", "ref.lu_factor(data)", square(normal), cubed(2 / 3)),
    linalg("linalg_lu_factor_ex", "(*ref.lu_factor(data), np.int32(0))", square(normal), cubed(2 / 3)),
    linalg(
        "lu_unpack",
        "ref.lu_unpack(data, pivots)",
        by_size(lambda n: {"data": Input(shape=(n, n)), "pivots": pivots(n)}, *DIRECT),
        lambda call: 0.0,
        "torch.lu_unpack(data, pivots)",
    ),
    linalg(
        "linalg_ldl_factor",
        "ref.ldl_factor(data)",
        square(heavy_symmetric),
        cubed(1 / 3),
        checked="(np.tril(out[0]), out[1])",
        differentiable=False,
    ),
)

_SPECTRA = (
    linalg(
        "linalg_svd",
        "np.linalg.svd(data, full_matrices=False)",
        square(normal, ITERATIVE),
        cubed(22.0),
        "torch.linalg.svd(data, full_matrices=False)",
        # singular vectors have no sign of their own: with it, what they are the vectors of, and that they are normal
        checked="(out[1], (out[0] * out[1]) @ out[2], out[0].T @ out[0], out[2] @ out[2].T)",
        differentiable=False,
    ),
    linalg("linalg_svdvals", "np.linalg.svd(data, compute_uv=False)", square(normal, ITERATIVE), cubed(8 / 3)),
    linalg(
        "linalg_eigh",
        "np.linalg.eigh(data)",
        square(symmetric, ITERATIVE),
        cubed(9.0),
        checked="(out[0], (out[1] * out[0]) @ out[1].T, out[1].T @ out[1])",
        differentiable=False,
    ),
    linalg("linalg_eigvalsh", "np.linalg.eigvalsh(data)", square(symmetric, ITERATIVE), cubed(4 / 3)),
    linalg(
        "linalg_eig",
        "np.linalg.eig(data)",
        square(normal, ITERATIVE),
        cubed(25.0),
        # neither the order of the values nor the phases of the vectors are given, so there is no gradient to compare
        checked="(np.sort(np.abs(out[0])), np.abs(i['data'] @ out[1] - out[1] * out[0]) + 1, "
        "np.sum(np.abs(out[1]) ** 2, axis=0))",
        differentiable=False,
    ),
    linalg(
        "linalg_eigvals",
        "np.linalg.eigvals(data)",
        square(normal, ITERATIVE),
        cubed(10.0),
        checked="(np.sort(np.abs(out[0])), np.sort(out[0].real))",
        differentiable=False,
    ),
)

_VECTORS = (
    linalg(
        "linalg_cross",
        "np.cross(lhs, rhs)",
        by_size(lambda n: {"lhs": Input(shape=(n, 3)), "rhs": Input(shape=(n, 3))}, 1024, 1 << 18, 1 << 22),
        per_output(3.0),
        "torch.linalg.cross(lhs, rhs)",
        aliases=("cross",),
    ),
    linalg(
        "linalg_vander",
        "np.vander(data, n, increasing=True)",
        by_size(lambda n: {"data": Input(shape=(n,), draw=uniform(0.5, 1.0))}, 512, 1 << 17, 1 << 20),
        per_output(),
        "torch.linalg.vander(data, N=n)",
        attributes={"n": 8},
    ),
)

OPERATORS = (*_NORMS, *_FACTORS, *_SPECTRA, *_VECTORS)
