"""Copies of data with some places written, added to or reduced into."""

from __future__ import annotations

from typing import Any

import numpy as np


def along(index: np.ndarray, dim: int) -> tuple[np.ndarray, ...]:
    """The places that an index along one dim means, as an index over all dims.

    >>> data = np.array([[1, 2], [3, 4]])
    >>> data[along(np.array([[1], [0]]), 1)]
    array([[2],
           [3]])
    """
    places: list[np.ndarray] = list(np.indices(index.shape, sparse=True))
    places[dim] = index
    return tuple(places)


def replaced(data: np.ndarray, where: Any, values: Any) -> np.ndarray:
    """Data with other values at some places, none of them named twice."""
    result = data.copy()
    result[where] = values
    return result


def added(data: np.ndarray, where: Any, values: np.ndarray) -> np.ndarray:
    """Data with values added at some places; one that is named twice gets both."""
    result = data.copy()
    np.add.at(result, where, values)
    return result


def raised(data: np.ndarray, where: Any, values: np.ndarray) -> np.ndarray:
    """Data with the largest of itself and the values for each place."""
    result = data.copy()
    np.maximum.at(result, where, values)
    return result


def averaged(data: np.ndarray, where: Any, values: np.ndarray) -> np.ndarray:
    """Data with the mean of itself and the values for each place."""
    count = added(np.ones(data.shape), where, np.ones(values.shape))
    return added(data, where, values) / count
