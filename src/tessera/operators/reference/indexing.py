"""Copies of data with some places written, added to or reduced into."""

from __future__ import annotations

from typing import Any

import numpy as np

from tessera.operators.arrays import Array


def along(index: Array, dim: int) -> tuple[Array, ...]:
    """The places that an index along one dim means, as an index over all dims.

    >>> data = np.array([[1, 2], [3, 4]])
    >>> data[along(np.array([[1], [0]]), 1)]
    array([[2],
           [3]])
    """
    places: list[Array] = list(np.indices(index.shape, sparse=True))
    places[dim] = index
    return tuple(places)


def replaced(data: Array, where: Any, values: Any) -> Array:
    """Data with other values at some places, none of them named twice."""
    result = data.copy()
    result[where] = values
    return result


def added(data: Array, where: Any, values: Array) -> Array:
    """Data with values added at some places; one that is named twice gets both."""
    result = data.copy()
    np.add.at(result, where, values)
    return result


def raised(data: Array, where: Any, values: Array) -> Array:
    """Data with the largest of itself and the values for each place."""
    result = data.copy()
    np.maximum.at(result, where, values)
    return result


def averaged(data: Array, where: Any, values: Array) -> Array:
    """Data with the mean of itself and the values for each place."""
    count = added(np.ones(data.shape), where, np.ones(values.shape))
    return added(data, where, values) / count


def nonzero_static(data: Array) -> Array:
    """Where data is not zero, in as many rows as it has values; the rows that are left over hold -1."""
    places = np.argwhere(data)
    return np.pad(places, [(0, data.size - len(places)), (0, 0)], constant_values=-1)
