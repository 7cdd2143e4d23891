"""Normalisation: values brought to mean zero and deviation one over some dims, then scaled and shifted."""

from __future__ import annotations

import numpy as np

from tessera.operators.arrays import Array

Affine = Array | None


def batch_norm(
    data: Array,
    running_mean: Array,
    running_var: Array,
    weight: Array,
    bias: Array,
    *,
    training: bool,
    eps: float,
) -> Array:
    """Each channel normalised over the batch and space, or by given statistics."""
    if training:
        centred = _standardised(data, tuple(d for d in range(data.ndim) if d != 1), eps)
    else:
        centred = (data - _channel(running_mean, data)) / np.sqrt(_channel(running_var, data) + eps)
    return _per_channel(centred, weight, bias)


def layer_norm(data: Array, weight: Affine = None, bias: Affine = None, *, dims: int, eps: float) -> Array:
    """Each sample normalised over its last dims."""
    centred = _standardised(data, tuple(range(-dims, 0)), eps)
    scaled = centred if weight is None else centred * weight
    return scaled if bias is None else scaled + bias


def group_norm(data: Array, num_groups: int, weight: Affine = None, bias: Affine = None, *, eps: float) -> Array:
    """Each group of channels of each sample normalised; as many groups as channels is instance normalisation."""
    grouped = data.reshape(data.shape[0], num_groups, -1)
    return _per_channel(_standardised(grouped, (2,), eps).reshape(data.shape), weight, bias)


def statistics(data: Array, axes: tuple[int, ...], eps: float) -> tuple[Array, Array]:
    """The mean and one over the deviation, as the native normalisations return them beside their result."""
    mean = data.mean(axis=axes, keepdims=True)
    return mean, 1.0 / np.sqrt(data.var(axis=axes, keepdims=True) + eps)


def rms_norm(data: Array, weight: Array, *, eps: float) -> Array:
    """Each row divided by its root mean square."""
    return np.asarray(data / np.sqrt(np.mean(data**2, axis=-1, keepdims=True) + eps) * weight)


def local_response_norm(data: Array, size: int, *, alpha: float, beta: float, k: float) -> Array:
    """Each value divided by a power of the mean square over neighbouring channels."""
    channels = data.shape[1]
    around = [(0, 0)] * data.ndim
    around[1] = (size // 2, (size - 1) // 2)
    squares = np.pad(data**2, around)
    total = sum(squares[:, shift : shift + channels] for shift in range(size))
    return np.asarray(data / (k + alpha * total / size) ** beta)


def weight_norm(direction: Array, magnitude: Array) -> Array:
    """A weight of given direction, whose slices along the first dim have given norms."""
    others = tuple(range(1, direction.ndim))
    norms = np.sqrt(np.sum(direction**2, axis=others, keepdims=True))
    return np.asarray(direction * (magnitude / norms))


def _standardised(data: Array, axes: tuple[int, ...], eps: float) -> Array:
    mean, scale = statistics(data, axes, eps)
    return (data - mean) * scale


def _channel(values: Array, data: Array) -> Array:
    return values.reshape(-1, *(1,) * (data.ndim - 2))


def _per_channel(data: Array, weight: Affine, bias: Affine) -> Array:
    scaled = data if weight is None else data * _channel(weight, data)
    return scaled if bias is None else scaled + _channel(bias, data)
