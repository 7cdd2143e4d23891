"""Matrices with the structure that an operator of linear algebra asks for."""

from __future__ import annotations

from tessera.operators.draws import Draw, symmetric, well_conditioned
from tessera.operators.operator import Input

# eigenvalues around one: determinants and powers stay of size one
near_identity = Draw("np.eye(shape[-1]) + 0.3 / shape[-1] ** 0.5 * rng.standard_normal(shape)")
# triangular ones that are easy to invert
heavy_lower = Draw(f"np.tril({near_identity.expression})")
heavy_upper = Draw(f"np.triu({near_identity.expression})")
# so heavy on the diagonal that no pivot is ever looked for
heavy_symmetric = Draw(f"{symmetric.expression} + 3 * shape[-1] ** 0.5 * np.eye(shape[-1])")
# square ones of half their full rank
low_rank = Draw(
    "rng.standard_normal((shape[0], shape[0] // 2)) @ rng.standard_normal((shape[0] // 2, shape[0])) / shape[0] ** 0.5"
)
# vectors below the diagonal, short enough for their reflections to be nearly independent
reflectors = Draw("0.1 / shape[-2] ** 0.5 * rng.standard_normal(shape)")
# a well-conditioned matrix, its rows folded to several dims
tensor_of_matrix = Draw(f"(lambda shape: {well_conditioned.expression})(shape[-1:] * 2).reshape(shape)")


def pivots(n: int) -> Input:
    """The exchanges of a factorisation: for each row, counted from one, itself or a later one."""
    return Input(shape=(n,), kind="int32", draw=Draw("rng.integers(np.arange(1, shape[0] + 1), shape[0] + 1)"))


def no_exchanges(n: int) -> Input:
    """The pivots of a factorisation in which every row stayed where it was."""
    return Input(shape=(n,), kind="int32", draw=Draw("np.arange(1, shape[0] + 1)"))
