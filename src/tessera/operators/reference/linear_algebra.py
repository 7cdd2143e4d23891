"""Factorisations and products that NumPy lacks, in the form that LAPACK gives them."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from tessera.operators.arrays import Array


def geqrf(data: Array) -> tuple[Array, Array]:
    """A QR factorisation as reflectors below the diagonal, R above it, and the reflectors' scales."""
    packed, scales = np.linalg.qr(data, mode="raw")
    return packed.swapaxes(-1, -2), scales


def householder_product(data: Array, tau: Array) -> Array:
    """The first columns of the product of the reflectors below the diagonal of data."""
    rows, columns = data.shape
    product = np.eye(rows, columns)
    for column in reversed(range(tau.shape[0])):
        vector = np.concatenate([np.zeros(column), [1.0], data[column + 1 :, column]])
        product = product - tau[column] * np.outer(vector, vector @ product)
    return product


def lu_factor(data: Array) -> tuple[Array, Array]:
    """L and U in one matrix, and the rows exchanged, counted from one."""
    packed, pivots = scipy.linalg.lu_factor(data)
    return packed, pivots + 1


def lu_unpack(data: Array, pivots: Array) -> tuple[Array, Array, Array]:
    """The permutation, L and U of a packed factorisation."""
    size = len(data)
    order = np.arange(size)
    for row, other in enumerate(pivots - 1):
        order[[row, other]] = order[[other, row]]
    return np.eye(size)[:, order], np.tril(data, -1) + np.eye(size), np.triu(data)


def lu_solve(data: Array, pivots: Array, rhs: Array) -> Array:
    """The solution of A x = rhs from the packed factorisation of A."""
    permutation, lower, upper = lu_unpack(data, pivots)
    return np.linalg.solve(permutation @ lower @ upper, rhs)


def ldl_factor(data: Array) -> tuple[Array, Array]:
    """L and D of a symmetric matrix with so heavy a diagonal that no rows are exchanged; the pivots say so."""
    factor = np.linalg.cholesky(data)
    diagonal = np.diagonal(factor)
    packed = factor / diagonal
    np.fill_diagonal(packed, diagonal**2)
    return packed, np.arange(1, len(data) + 1)


def ldl_solve(data: Array, rhs: Array) -> Array:
    """The solution of L D L' x = rhs from the packed factorisation, without exchanges."""
    lower = np.tril(data, -1) + np.eye(len(data))
    return np.linalg.solve(lower * np.diagonal(data) @ lower.T, rhs)
