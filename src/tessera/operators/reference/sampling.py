"""Random draws that NumPy has no function for. Each call draws anew: only moments can be compared."""

from __future__ import annotations

import numpy as np

from tessera.operators.arrays import Array

ALPHA = -1.7580993408473766  # the value that SELU tends to on the left


def binomial(count: Array, prob: Array) -> Array:
    """How many of `count` trials succeed, each with its own chance."""
    return np.random.binomial(count.astype(np.int64), prob)


def multinomial(data: Array, num_samples: int) -> Array:
    """Numbers drawn by the chances in each row."""
    steps = np.cumsum(data, axis=-1)
    return np.stack([np.searchsorted(row, np.random.random(num_samples) * row[-1]) for row in steps])


def multinomial_once(data: Array, num_samples: int) -> Array:
    """Numbers drawn by the chances in each row, none twice: those whose turn comes first in a race."""
    turns = np.random.exponential(size=data.shape) / data
    return np.argsort(turns, axis=-1)[..., :num_samples]


def truncated_normal(shape: tuple[int, ...]) -> Array:
    """Standard normal values, drawn again until they lie within two deviations."""
    values = np.random.standard_normal(shape)
    while (outside := np.abs(values) > 2).any():
        values[outside] = np.random.standard_normal(np.count_nonzero(outside))
    return values


def dropout(data: Array, p: float, whole: int = 0) -> Array:
    """Some values zero, the others larger for it; `whole` trailing dims are kept or dropped together."""
    return data * _kept(data, p, whole) / (1 - p)


def alpha_dropout(data: Array, p: float, whole: int = 0) -> Array:
    """Some values replaced by where SELU saturates, all shifted and scaled to mean zero and deviation one again."""
    scale = ((1 - p) * (1 + p * ALPHA**2)) ** -0.5
    return np.asarray(scale * np.where(_kept(data, p, whole), data, ALPHA) - scale * ALPHA * p)


def _kept(data: Array, p: float, whole: int) -> Array:
    each = data.ndim - whole
    return np.random.random(data.shape[:each] + (1,) * whole) >= p
