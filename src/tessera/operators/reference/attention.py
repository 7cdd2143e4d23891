"""Reference implementations of attention."""

from __future__ import annotations

import math

import numpy as np

from tessera.operators.arrays import Array


def attention(query: Array, key: Array, value: Array, mask: Array | None = None, *, causal: bool = False) -> Array:
    """Return scaled dot-product attention over (..., heads, length, features).

    A boolean mask is true where a query may attend to a key; any other mask is added to the scores. If keys and values
    have fewer heads than queries, each of their heads is shared by a group of query heads.
    """
    shared = query.shape[-3] // key.shape[-3]
    if shared > 1:
        key, value = (np.repeat(part, shared, axis=-3) for part in (key, value))
    scores = query @ key.swapaxes(-1, -2) / math.sqrt(query.shape[-1])
    if causal:
        mask = np.tri(query.shape[-2], key.shape[-2], dtype=bool)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True) @ value)


def multi_head_attention(
    query: Array,
    key: Array,
    value: Array,
    in_weight: Array,
    in_bias: Array,
    out_weight: Array,
    out_bias: Array,
    *,
    num_heads: int,
) -> Array:
    """Return multi-head attention over (n, length, features), with input projections and an output projection."""
    weights, biases = np.split(in_weight, 3), np.split(in_bias, 3)
    heads = []
    for part, weight, bias in zip((query, key, value), weights, biases, strict=True):
        projected = part @ weight.T + bias
        n, length, features = projected.shape
        heads.append(projected.reshape(n, length, num_heads, features // num_heads).swapaxes(1, 2))
    mixed = attention(*heads).swapaxes(1, 2).reshape(query.shape)
    return mixed @ out_weight.T + out_bias
