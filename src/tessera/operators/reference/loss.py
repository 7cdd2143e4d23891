"""Reference implementations of losses over classes, pairs, triplets and sequences; each is a mean over the batch."""

from __future__ import annotations

import numpy as np

from tessera.operators.arrays import Array


def log_softmax(data: Array, axis: int = -1) -> Array:
    """Return the log-softmax of scores along `axis`."""
    shifted = data - data.max(axis=axis, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True)))


def nll_loss(data: Array, target: Array, weight: Array | None = None) -> Array:
    """Return the mean negative log-probability of the labels.

    `data` holds log-probabilities (n, classes, *space), `target` labels (n, *space), `weight` a weight per class.
    """
    chosen = -np.take_along_axis(data, np.expand_dims(target, 1), axis=1).squeeze(1)
    if weight is None:
        return np.asarray(chosen.mean())
    weights = weight[target]
    return np.asarray((chosen * weights).sum() / weights.sum())


def cross_entropy(data: Array, target: Array, weight: Array | None = None, *, label_smoothing: float = 0.0) -> Array:
    """Return the cross entropy of scores (n, classes, *space).

    The target is labels (n, *space), or class probabilities with the shape of the scores.
    """
    logs = log_softmax(data, axis=1)
    if target.shape == data.shape:
        return np.asarray(-(logs * target).sum(axis=1).mean())
    smooth = -logs.mean(axis=1).mean()
    return np.asarray((1.0 - label_smoothing) * nll_loss(logs, target, weight) + label_smoothing * smooth)


def huber_loss(data: Array, target: Array, delta: float) -> Array:
    """Return the mean Huber loss: quadratic for errors below `delta`, linear above."""
    error = np.abs(data - target)
    return np.asarray(np.where(error < delta, 0.5 * error**2, delta * (error - 0.5 * delta)).mean())


def multi_margin_loss(data: Array, target: Array, margin: float) -> Array:
    """Return the mean hinge loss max(0, margin - target score + other score) over the other classes."""
    rows = np.arange(len(data))
    short = np.maximum(margin - data[rows, target][:, None] + data, 0.0)
    short[rows, target] = 0.0
    return np.asarray(short.sum(axis=1).mean() / data.shape[1])


def multilabel_margin_loss(data: Array, target: Array) -> Array:
    """Return the mean hinge loss max(0, 1 - target score + other score); a row's targets end at the first -1."""
    listed = np.cumprod(target >= 0, axis=1).astype(bool)
    row, position = np.nonzero(listed)
    label = target[row, position]
    belongs = np.zeros(data.shape, dtype=bool)
    belongs[row, label] = True
    short = np.maximum(1.0 - data[row, label][:, None] + data[row], 0.0)
    return np.asarray(np.where(belongs[row], 0.0, short).sum() / data.size)


def triplet_margin_loss(anchor: Array, positive: Array, negative: Array, margin: float, eps: float = 1e-6) -> Array:
    """Return the mean of max(0, distance to the positive - distance to the negative + margin)."""
    near, far = (np.sqrt(((anchor - other + eps) ** 2).sum(axis=-1)) for other in (positive, negative))
    return np.asarray(np.maximum(near - far + margin, 0.0).mean())


def cosine_embedding_loss(lhs: Array, rhs: Array, target: Array, margin: float) -> Array:
    """Return the mean of 1 - cosine for pairs with target 1, and max(0, cosine - margin) for pairs with target -1."""
    cosine = (lhs * rhs).sum(-1) / np.sqrt((lhs**2).sum(-1) * (rhs**2).sum(-1))
    return np.asarray(np.where(target > 0, 1.0 - cosine, np.maximum(cosine - margin, 0.0)).mean())


def ctc_loss(data: Array, target: Array) -> Array:
    """Return the negative log-probability of labels (n, length), given scores (time, n, classes); class 0 is the blank.

    The forward algorithm sums over all alignments. The result is the mean over the batch of the loss per label.
    """
    logs = log_softmax(data)
    n, length = target.shape
    extended = np.zeros((n, 2 * length + 1), dtype=np.int64)
    extended[:, 1::2] = target
    # no blank is required between two consecutive labels unless they are equal
    skip = np.zeros(extended.shape, dtype=bool)
    skip[:, 2:] = (extended[:, 2:] != 0) & (extended[:, 2:] != extended[:, :-2])
    alpha = np.full(extended.shape, -np.inf)
    for time, now in enumerate(logs):
        emissions = np.take_along_axis(now, extended, axis=1)
        if time == 0:
            alpha[:, :2] = emissions[:, :2]
            continue
        from_previous = np.pad(alpha, [(0, 0), (1, 0)], constant_values=-np.inf)[:, :-1]
        from_skip = np.where(skip, np.pad(alpha, [(0, 0), (2, 0)], constant_values=-np.inf)[:, :-2], -np.inf)
        alpha = emissions + np.logaddexp(np.logaddexp(alpha, from_previous), from_skip)
    total = np.logaddexp(alpha[:, -1], alpha[:, -2])
    return np.asarray((-total / length).mean())
