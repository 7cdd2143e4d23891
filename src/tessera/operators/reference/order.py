"""What follows from the order of values: sorted ones with their places, order statistics, running extremes."""

from __future__ import annotations

import numpy as np

from tessera.operators.arrays import Array

Ordered = tuple[Array, Array]


def sort(data: Array, dim: int = -1, descending: bool = False) -> Ordered:
    """Sorted values and where each was; equal ones stay in their order."""
    order = np.argsort(-data if descending else data, axis=dim, kind="stable")
    return np.take_along_axis(data, order, dim), order


def topk(data: Array, k: int, dim: int = -1) -> Ordered:
    """The `k` largest values, the largest first, and where each was."""
    values, order = sort(data, dim, descending=True)
    return np.take(values, range(k), dim), np.take(order, range(k), dim)


def kthvalue(data: Array, k: int, dim: int = -1) -> Ordered:
    """The value that is the `k`th smallest, and where it was."""
    values, order = sort(data, dim)
    return np.take(values, k - 1, dim), np.take(order, k - 1, dim)


def median(data: Array, dim: int = -1) -> Ordered:
    """The lower one of the two values in the middle, NaN left out, and where it was."""
    values, order = sort(data, dim)  # NaN comes last
    middle = np.expand_dims((np.count_nonzero(~np.isnan(data), dim) - 1) // 2, dim)
    found = (np.take_along_axis(each, middle, dim).squeeze(dim) for each in (values, order))
    return next(found), next(found)


def mode(data: Array, dim: int = -1) -> Ordered:
    """The value that is there most often, the smallest of several, and where it is last."""
    values, order = (np.moveaxis(found, dim, -1) for found in sort(data, dim))
    place = np.arange(values.shape[-1])
    starts = np.insert(values[..., 1:] != values[..., :-1], 0, True, axis=-1)
    run = place - np.maximum.accumulate(np.where(starts, place, 0), axis=-1)  # how many equal ones came before
    last = np.argmax(run, -1)[..., None]
    return np.take_along_axis(values, last, -1)[..., 0], np.take_along_axis(order, last, -1)[..., 0]


def cummax(data: Array, dim: int = -1) -> Ordered:
    """The largest value so far, and where it was last."""
    return _running(data, np.maximum.accumulate(data, axis=dim), dim)


def cummin(data: Array, dim: int = -1) -> Ordered:
    """The smallest value so far, and where it was last."""
    return _running(data, np.minimum.accumulate(data, axis=dim), dim)


def _running(data: Array, extreme: Array, dim: int) -> Ordered:
    place = np.expand_dims(np.arange(data.shape[dim]), tuple(d for d in range(data.ndim) if d != dim % data.ndim))
    return extreme, np.maximum.accumulate(np.where(data == extreme, place, 0), axis=dim)


def searchsorted_rows(rows: Array, values: Array) -> Array:
    """Where values belong in sorted rows, each row of values in its own."""
    return np.stack([np.searchsorted(row, wanted) for row, wanted in zip(rows, values, strict=True)])
