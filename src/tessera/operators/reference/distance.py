"""Norms and angles of vectors."""

from __future__ import annotations

import numpy as np

from tessera.operators.arrays import Array


def renorm(data: Array, p: float, dim: int, maxnorm: float) -> Array:
    """Slices whose norm is above `maxnorm` scaled down to it."""
    others = tuple(d for d in range(data.ndim) if d != dim)
    norm = (np.abs(data) ** p).sum(others, keepdims=True) ** (1 / p)
    return np.asarray(data * np.where(norm > maxnorm, maxnorm / (norm + 1e-7), 1.0))


def cosine_similarity(lhs: Array, rhs: Array) -> Array:
    """The cosine of the angle between vectors that lie along the last dim."""
    lengths = np.linalg.norm(lhs, axis=-1) * np.linalg.norm(rhs, axis=-1)
    return np.asarray((lhs * rhs).sum(-1) / lengths)


def normalize(data: Array, dim: int = -1, eps: float = 1e-12) -> Array:
    """Vectors scaled to length one."""
    return np.asarray(data / np.maximum(np.linalg.norm(data, axis=dim, keepdims=True), eps))
