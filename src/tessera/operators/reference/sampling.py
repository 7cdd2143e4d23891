"""Reference implementations of random draws that NumPy lacks. Values differ per call; only moments are compared."""

from __future__ import annotations

import numpy as np

from tessera.operators.arrays import Array

ALPHA = -1.7580993408473766  # the limit of SELU towards minus infinity


def binomial(count: Array, prob: Array) -> Array:
    """Draw, for each element, the number of successes in `count` trials with success probability `prob`."""
    return np.random.binomial(count.astype(np.int64), prob)


def multinomial(data: Array, num_samples: int) -> Array:
    """Draw `num_samples` column indices per row with replacement; each row holds unnormalised probabilities."""
    steps = np.cumsum(data, axis=-1)
    return np.stack([np.searchsorted(row, np.random.random(num_samples) * row[-1]) for row in steps])


def multinomial_once(data: Array, num_samples: int) -> Array:
    """Draw `num_samples` column indices per row without replacement, by sorting exponential arrival times."""
    arrivals = np.random.exponential(size=data.shape) / data
    return np.argsort(arrivals, axis=-1)[..., :num_samples]


def truncated_normal(shape: tuple[int, ...]) -> Array:
    """Draw standard normal values, and redraw values beyond two standard deviations."""
    values = np.random.standard_normal(shape)
    while (outside := np.abs(values) > 2).any():
        values[outside] = np.random.standard_normal(np.count_nonzero(outside))
    return values


def dropout(data: Array, p: float, whole: int = 0) -> Array:
    """Set values to zero with probability `p` and scale the rest; the last `whole` dims are dropped together."""
    return data * _draw_kept(data, p, whole) / (1 - p)


def alpha_dropout(data: Array, p: float, whole: int = 0) -> Array:
    """Replace values by the limit of SELU with probability `p`, then restore mean zero and standard deviation one."""
    scale = ((1 - p) * (1 + p * ALPHA**2)) ** -0.5
    return np.asarray(scale * np.where(_draw_kept(data, p, whole), data, ALPHA) - scale * ALPHA * p)


def _draw_kept(data: Array, p: float, whole: int) -> Array:
    leading = data.ndim - whole
    return np.random.random(data.shape[:leading] + (1,) * whole) >= p
