"""Sliding windows over the spatial dims of (n, channels, *space), one kernel element (tap) at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from tessera.operators.arrays import Array

Each = int | Sequence[int]


def per_dim(value: Each, dims: int) -> tuple[int, ...]:
    """Return one value for each spatial dim; repeat a single number.

    >>> per_dim(2, 3)
    (2, 2, 2)
    """
    return (value,) * dims if isinstance(value, int) else tuple(value)


def count(size: int, kernel: int, stride: int, dilation: int) -> int:
    """Count the windows that fit into a dim of `size` elements, padding included.

    >>> count(7, 3, 2, 1)
    3
    """
    return (size - dilation * (kernel - 1) - 1) // stride + 1


def last_dims(array: Array, index: tuple[Any, ...]) -> Array:
    """Apply an index to the last dims of an array."""
    whole: tuple[Any, ...] = (..., *index)
    return np.asarray(array[whole])


def taps(
    padded: Array, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], space: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], Array]]:
    """Yield each kernel element (tap) and a view of the values that it meets in all windows."""
    for tap in product(*map(range, kernel)):
        starts = [position * gap for position, gap in zip(tap, dilation, strict=True)]
        window = tuple(
            slice(start, start + step * (n - 1) + 1, step) for start, step, n in zip(starts, stride, space, strict=True)
        )
        yield tap, last_dims(padded, window)
