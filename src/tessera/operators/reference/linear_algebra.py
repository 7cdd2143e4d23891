"""Reference implementations of factorisations and products that NumPy lacks, in LAPACK's form."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from tessera.operators.arrays import Array


def geqrf(data: Array) -> tuple[Array, Array]:
    """Return a QR factorisation: R with the reflectors below its diagonal, and the scales of the reflectors."""
    packed, scales = np.linalg.qr(data, mode="raw")
    return packed.swapaxes(-1, -2), scales


def householder_product(data: Array, tau: Array) -> Array:
    """Return the first columns of the product of the Householder reflectors stored below the diagonal of `data`."""
    rows, columns = data.shape
    product = np.eye(rows, columns)
    for column in reversed(range(tau.shape[0])):
        vector = np.concatenate([np.zeros(column), [1.0], data[column + 1 :, column]])
        product = product - tau[column] * np.outer(vector, vector @ product)
    return product


def lu_factor(data: Array) -> tuple[Array, Array]:
    """Return an LU factorisation: L and U packed in one matrix, and the one-based pivot indices."""
    packed, pivots = scipy.linalg.lu_factor(data)
    return packed, pivots + 1


def lu_unpack(data: Array, pivots: Array) -> tuple[Array, Array, Array]:
    """Return the permutation matrix, L and U of a packed LU factorisation."""
    size = len(data)
    order = np.arange(size)
    for row, other in enumerate(pivots - 1):
        order[[row, other]] = order[[other, row]]
    return np.eye(size)[:, order], np.tril(data, -1) + np.eye(size), np.triu(data)


def lu_solve(data: Array, pivots: Array, rhs: Array) -> Array:
    """Return the solution of A x = rhs from the packed LU factorisation of A."""
    permutation, lower, upper = lu_unpack(data, pivots)
    return np.linalg.solve(permutation @ lower @ upper, rhs)


def ldl_factor(data: Array) -> tuple[Array, Array]:
    """Return the packed LDL factorisation of a diagonally dominant symmetric matrix, and its identity pivots."""
    factor = np.linalg.cholesky(data)
    diagonal = np.diagonal(factor)
    packed = factor / diagonal
    np.fill_diagonal(packed, diagonal**2)
    return packed, np.arange(1, len(data) + 1)


def ldl_solve(data: Array, rhs: Array) -> Array:
    """Return the solution of L D L' x = rhs from the packed LDL factorisation without row exchanges."""
    lower = np.tril(data, -1) + np.eye(len(data))
    return np.linalg.solve(lower * np.diagonal(data) @ lower.T, rhs)
