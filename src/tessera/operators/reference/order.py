"""Reference implementations of sorting, order statistics and cumulative extremes, with the index of each value."""

from __future__ import annotations

import numpy as np

from tessera.operators.arrays import Array

Ordered = tuple[Array, Array]


def sort(data: Array, dim: int = -1, descending: bool = False) -> Ordered:
    """Return sorted values and their indices; the sort is stable."""
    order = np.argsort(-data if descending else data, axis=dim, kind="stable")
    return np.take_along_axis(data, order, dim), order


def topk(data: Array, k: int, dim: int = -1) -> Ordered:
    """Return the `k` largest values, largest first, and their indices."""
    values, order = sort(data, dim, descending=True)
    return np.take(values, range(k), dim), np.take(order, range(k), dim)


def kthvalue(data: Array, k: int, dim: int = -1) -> Ordered:
    """Return the `k`th smallest value and its index."""
    values, order = sort(data, dim)
    return np.take(values, k - 1, dim), np.take(order, k - 1, dim)


def median(data: Array, dim: int = -1) -> Ordered:
    """Return the lower median of the values that are not NaN, and its index."""
    values, order = sort(data, dim)  # NaN comes last
    middle = np.expand_dims((np.count_nonzero(~np.isnan(data), dim) - 1) // 2, dim)
    return np.take_along_axis(values, middle, dim).squeeze(dim), np.take_along_axis(order, middle, dim).squeeze(dim)


def mode(data: Array, dim: int = -1) -> Ordered:
    """Return the most frequent value and its last index; among equally frequent values, the smallest."""
    values, order = (np.moveaxis(part, dim, -1) for part in sort(data, dim))
    place = np.arange(values.shape[-1])
    starts = np.insert(values[..., 1:] != values[..., :-1], 0, True, axis=-1)
    run = place - np.maximum.accumulate(np.where(starts, place, 0), axis=-1)  # the number of preceding equal values
    last = np.argmax(run, -1)[..., None]
    return np.take_along_axis(values, last, -1)[..., 0], np.take_along_axis(order, last, -1)[..., 0]


def cummax(data: Array, dim: int = -1) -> Ordered:
    """Return the cumulative maximum along `dim`, and the last index at which each maximum occurred."""
    return _find_last_indices(data, np.maximum.accumulate(data, axis=dim), dim)


def cummin(data: Array, dim: int = -1) -> Ordered:
    """Return the cumulative minimum along `dim`, and the last index at which each minimum occurred."""
    return _find_last_indices(data, np.minimum.accumulate(data, axis=dim), dim)


def _find_last_indices(data: Array, extreme: Array, dim: int) -> Ordered:
    place = np.expand_dims(np.arange(data.shape[dim]), tuple(d for d in range(data.ndim) if d != dim % data.ndim))
    return extreme, np.maximum.accumulate(np.where(data == extreme, place, 0), axis=dim)


def searchsorted_rows(rows: Array, values: Array) -> Array:
    """Return the insertion indices of each row of `values` in the corresponding sorted row of `rows`."""
    return np.stack([np.searchsorted(row, wanted) for row, wanted in zip(rows, values, strict=True)])
