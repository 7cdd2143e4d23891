"""Linear systems: inverses, powers, and solutions by every factorisation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from tessera.operators.catalogue.matrices import (
    heavy_lower,
    heavy_upper,
    near_identity,
    no_exchanges,
    pivots,
    tensor_of_matrix,
)
from tessera.operators.catalogue.matrix_operator import BATCH, DIRECT, ITERATIVE, TALL, batch, cubed, linalg, square
from tessera.operators.draws import Draw, well_conditioned
from tessera.operators.operator import Call, Input, by_size


def _system(draw: Draw, **more: Callable[[int], Input]) -> Mapping[str, Mapping[str, Input]]:
    """A matrix and right-hand sides, an eighth as many as there are unknowns."""

    def inputs(n: int) -> dict[str, Input]:
        others = {name: make(n) for name, make in more.items()}
        return {"data": Input(shape=(n, n), draw=draw), **others, "rhs": Input(shape=(n, n // 8))}

    return by_size(inputs, *DIRECT)


def _solved(factor: float, per_side: float = 2.0) -> Callable[[Call], float]:
    """A factorisation of so many n^3, then so many n^2 for each right-hand side."""

    def flops(call: Call) -> float:
        return cubed(factor)(call) + per_side * math.prod(call.shapes["rhs"]) * call.shapes["rhs"][-2]

    return flops


_INVERSES = (
    linalg("linalg_inv", "np.linalg.inv(data)", square(well_conditioned), cubed(2.0), aliases=("inverse",)),
    linalg("linalg_inv_ex", "(np.linalg.inv(data), np.int32(0))", square(well_conditioned), cubed(2.0)),
    linalg("linalg_inv_batched", "np.linalg.inv(data)", batch(well_conditioned), cubed(2.0), "torch.linalg.inv(data)"),
    linalg(
        "linalg_pinv",
        "np.linalg.pinv(data)",
        by_size(lambda m, n: {"data": Input(shape=(m, n))}, (32, 16), (256, 64), (1024, 256)),
        cubed(14.0),
        aliases=("pinverse",),
    ),
    linalg("cholesky_inverse", "np.linalg.inv(data @ data.T)", square(heavy_lower), cubed(2 / 3)),
    linalg(
        "linalg_tensorinv",
        "np.linalg.tensorinv(data, ind)",
        by_size(lambda n: {"data": Input(shape=(n, n, n * n), draw=tensor_of_matrix)}, 4, 16, 32),
        lambda call: 2.0 * call.shapes["data"][-1] ** 3,
        "torch.linalg.tensorinv(data, ind)",
        attributes={"ind": 2},
    ),
    linalg(
        "linalg_matrix_power",
        "np.linalg.matrix_power(data, n)",
        square(near_identity),
        cubed(6.0),  # the fifth power takes three products
        "torch.linalg.matrix_power(data, n)",
        attributes={"n": 5},
    ),
    linalg("linalg_matrix_exp", "scipy.linalg.expm(data)", square(near_identity, ITERATIVE), lambda call: 0.0),
)

_SOLUTIONS = (
    linalg(
        "linalg_solve",
        "np.linalg.solve(data, rhs)",
        _system(well_conditioned),
        _solved(2 / 3),
        "torch.linalg.solve(data, rhs)",
    ),
    linalg(
        "linalg_solve_ex",
        "(np.linalg.solve(data, rhs), np.int32(0))",
        _system(well_conditioned),
        _solved(2 / 3),
        "torch.linalg.solve_ex(data, rhs)",
    ),
    linalg(
        "linalg_solve_batched",
        "np.linalg.solve(data, rhs)",
        by_size(
            lambda count, n: {
                "data": Input(shape=(count, n, n), draw=well_conditioned),
                "rhs": Input(shape=(count, n, 2)),
            },
            *BATCH,
        ),
        _solved(2 / 3),
        "torch.linalg.solve(data, rhs)",
    ),
    linalg(
        "linalg_solve_triangular",
        "scipy.linalg.solve_triangular(data, rhs)",
        _system(heavy_upper),
        _solved(0.0, 1.0),
        "torch.linalg.solve_triangular(data, rhs, upper=True)",
    ),
    linalg(
        "triangular_solve",
        "scipy.linalg.solve_triangular(data, rhs, lower=True)",
        _system(heavy_lower),
        _solved(0.0, 1.0),
        "torch.triangular_solve(rhs, data, upper=False)[0]",
    ),
    linalg(
        "cholesky_solve",
        "np.linalg.solve(data @ data.T, rhs)",
        _system(heavy_lower),
        _solved(0.0),
        "torch.cholesky_solve(rhs, data)",
    ),
    linalg(
        "linalg_lu_solve",
        "ref.lu_solve(data, pivots, rhs)",
        _system(near_identity, pivots=pivots),
        _solved(0.0),
        "torch.linalg.lu_solve(data, pivots, rhs)",
    ),
    linalg(
        "linalg_ldl_solve",
        "ref.ldl_solve(data, rhs)",
        _system(heavy_lower, pivots=no_exchanges),
        _solved(0.0),
        "torch.linalg.ldl_solve(data, pivots, rhs)",
        differentiable=False,
    ),
    linalg(
        "linalg_lstsq",
        "np.linalg.lstsq(data, rhs)[0]",
        by_size(lambda m, n: {"data": Input(shape=(m, n)), "rhs": Input(shape=(m, n // 4))}, *TALL),
        cubed(2.0),
        "torch.linalg.lstsq(data, rhs).solution",
    ),
    linalg(
        "linalg_tensorsolve",
        "np.linalg.tensorsolve(data, rhs)",
        by_size(
            lambda n: {"data": Input(shape=(n, n, n * n), draw=tensor_of_matrix), "rhs": Input(shape=(n, n))}, 4, 16, 32
        ),
        lambda call: 2 / 3 * call.shapes["data"][-1] ** 3,
        "torch.linalg.tensorsolve(data, rhs)",
    ),
)

OPERATORS = (*_INVERSES, *_SOLUTIONS)
