"""Matrices with the structure that an operator of linear algebra asks for."""

from __future__ import annotations

import math
from typing import Any

from tessera.operators.draws import symmetric, well_conditioned
from tessera.operators.operator import Input, Shape


def near_identity(rng: Any, shape: Shape) -> Any:
    """Matrices whose eigenvalues lie around one: determinants and powers stay of size one."""
    matrix = rng.standard_normal(shape) * (0.3 / math.sqrt(shape[-1]))
    diagonal = range(shape[-1])
    matrix[..., diagonal, diagonal] += 1.0
    return matrix


def heavy_symmetric(rng: Any, shape: Shape) -> Any:
    """Symmetric matrices so heavy on the diagonal that no pivot is ever looked for."""
    matrix = symmetric(rng, shape)
    diagonal = range(shape[-1])
    matrix[..., diagonal, diagonal] += 3.0 * math.sqrt(shape[-1])
    return matrix


def heavy_lower(rng: Any, shape: Shape) -> Any:
    """Lower triangular matrices that are easy to invert."""
    import numpy as np

    return np.tril(near_identity(rng, shape))


def heavy_upper(rng: Any, shape: Shape) -> Any:
    """Upper triangular matrices that are easy to invert."""
    return heavy_lower(rng, shape).swapaxes(-1, -2).copy()


def low_rank(rng: Any, shape: Shape) -> Any:
    """Square matrices of half their full rank."""
    half = (*shape[:-1], shape[-1] // 2)
    return rng.standard_normal(half) @ rng.standard_normal(half).swapaxes(-1, -2)


def reflectors(rng: Any, shape: Shape) -> Any:
    """Vectors below the diagonal whose reflections, with a scale near one, keep lengths."""
    return rng.standard_normal(shape) / math.sqrt(shape[-2])


def pivots(n: int) -> Input:
    """The exchanges of a factorisation: for each row, counted from one, itself or a later one."""
    return Input(
        shape=(n,), kind="int32", draw=lambda rng, shape: [rng.integers(row, n + 1) for row in range(1, n + 1)]
    )


def no_exchanges(n: int) -> Input:
    """The pivots of a factorisation in which every row stayed where it was."""
    return Input(shape=(n,), kind="int32", draw=lambda rng, shape: range(1, n + 1))


def tensor_of_matrix(rng: Any, shape: Shape) -> Any:
    """A well-conditioned matrix, its rows folded to several dims."""
    return well_conditioned(rng, (shape[-1], shape[-1])).reshape(shape)
