"""Losses over classes, pairs, triplets and sequences; each gives the mean over the batch."""

from __future__ import annotations

import numpy as np

from tessera.operators.arrays import Array


def log_softmax(data: Array, axis: int = -1) -> Array:
    """The logarithm of the probabilities that scores stand for."""
    shifted = data - data.max(axis=axis, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True)))


def nll_loss(data: Array, target: Array, weight: Array | None = None) -> Array:
    """Minus the log-probability (n, classes, *space) of the labels (n, *space), each class weighted."""
    chosen = -np.take_along_axis(data, np.expand_dims(target, 1), axis=1).squeeze(1)
    if weight is None:
        return np.asarray(chosen.mean())
    weights = weight[target]
    return np.asarray((chosen * weights).sum() / weights.sum())


def cross_entropy(data: Array, target: Array, weight: Array | None = None, *, label_smoothing: float = 0.0) -> Array:
    """Cross entropy of scores (n, classes, *space) with labels, or with probabilities of data's own shape."""
    logs = log_softmax(data, axis=1)
    if target.shape == data.shape:
        return np.asarray(-(logs * target).sum(axis=1).mean())
    smooth = -logs.mean(axis=1).mean()
    return np.asarray((1.0 - label_smoothing) * nll_loss(logs, target, weight) + label_smoothing * smooth)


def huber_loss(data: Array, target: Array, delta: float) -> Array:
    """Quadratic near zero, linear beyond delta."""
    error = np.abs(data - target)
    return np.asarray(np.where(error < delta, 0.5 * error**2, delta * (error - 0.5 * delta)).mean())


def multi_margin_loss(data: Array, target: Array, margin: float) -> Array:
    """How far the score of every other class comes within a margin of the target's."""
    rows = np.arange(len(data))
    short = np.maximum(margin - data[rows, target][:, None] + data, 0.0)
    short[rows, target] = 0.0
    return np.asarray(short.sum(axis=1).mean() / data.shape[1])


def multilabel_margin_loss(data: Array, target: Array) -> Array:
    """How far scores of other classes come within one of the targets'; a row's targets end at the first -1."""
    listed = np.cumprod(target >= 0, axis=1).astype(bool)
    row, position = np.nonzero(listed)
    label = target[row, position]
    belongs = np.zeros(data.shape, dtype=bool)
    belongs[row, label] = True
    short = np.maximum(1.0 - data[row, label][:, None] + data[row], 0.0)
    return np.asarray(np.where(belongs[row], 0.0, short).sum() / data.size)


def triplet_margin_loss(anchor: Array, positive: Array, negative: Array, margin: float, eps: float = 1e-6) -> Array:
    """How much the anchor is not nearer to the positive than to the negative, by a margin."""
    near, far = (np.sqrt(((anchor - other + eps) ** 2).sum(axis=-1)) for other in (positive, negative))
    return np.asarray(np.maximum(near - far + margin, 0.0).mean())


def cosine_embedding_loss(lhs: Array, rhs: Array, target: Array, margin: float) -> Array:
    """One minus the cosine of pairs that belong together (1), the cosine beyond a margin of those that do not (-1)."""
    cosine = (lhs * rhs).sum(-1) / np.sqrt((lhs**2).sum(-1) * (rhs**2).sum(-1))
    return np.asarray(np.where(target > 0, 1.0 - cosine, np.maximum(cosine - margin, 0.0)).mean())


def ctc_loss(data: Array, target: Array) -> Array:
    """Minus the log-probability that scores (time, n, classes) spell labels (n, length), class 0 being the blank.

    Summed over all alignments by the forward algorithm; the mean over the batch of the loss per label.
    """
    logs = log_softmax(data)
    n, length = target.shape
    spelled = np.zeros((n, 2 * length + 1), dtype=np.int64)
    spelled[:, 1::2] = target
    # a label may follow the one before it directly, unless they are equal
    skip = np.zeros(spelled.shape, dtype=bool)
    skip[:, 2:] = (spelled[:, 2:] != 0) & (spelled[:, 2:] != spelled[:, :-2])
    alpha = np.full(spelled.shape, -np.inf)
    for time, now in enumerate(logs):
        seen = np.take_along_axis(now, spelled, axis=1)
        if time == 0:
            alpha[:, :2] = seen[:, :2]
            continue
        one = np.pad(alpha, [(0, 0), (1, 0)], constant_values=-np.inf)[:, :-1]
        two = np.where(skip, np.pad(alpha, [(0, 0), (2, 0)], constant_values=-np.inf)[:, :-2], -np.inf)
        alpha = seen + np.logaddexp(np.logaddexp(alpha, one), two)
    total = np.logaddexp(alpha[:, -1], alpha[:, -2])
    return np.asarray((-total / length).mean())
