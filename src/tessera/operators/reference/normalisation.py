"""Reference implementations of normalisation layers, and of norms and cosine similarity of vectors."""

from __future__ import annotations

import numpy as np

from tessera.operators.arrays import Array

Affine = Array | None


def batch_norm(
    data: Array, running_mean: Array, running_var: Array, weight: Array, bias: Array, *, training: bool, eps: float
) -> Array:
    """Normalise each channel over batch and space or, if not `training`, by the running mean and variance."""
    if training:
        centred = _standardise(data, tuple(d for d in range(data.ndim) if d != 1), eps)
    else:
        centred = (data - _channel(running_mean, data)) / np.sqrt(_channel(running_var, data) + eps)
    return _scale_and_shift(centred, weight, bias)


def layer_norm(data: Array, weight: Affine = None, bias: Affine = None, *, dims: int, eps: float) -> Array:
    """Normalise each sample over its last `dims` dims."""
    centred = _standardise(data, tuple(range(-dims, 0)), eps)
    scaled = centred if weight is None else centred * weight
    return scaled if bias is None else scaled + bias


def group_norm(data: Array, num_groups: int, weight: Affine = None, bias: Affine = None, *, eps: float) -> Array:
    """Normalise each group of channels of each sample; instance normalisation has as many groups as channels."""
    grouped = data.reshape(data.shape[0], num_groups, -1)
    return _scale_and_shift(_standardise(grouped, (2,), eps).reshape(data.shape), weight, bias)


def compute_mean_and_rstd(data: Array, axes: tuple[int, ...], eps: float) -> tuple[Array, Array]:
    """Return the mean and reciprocal standard deviation over `axes`, as torch's `native_*_norm` operators do."""
    mean = data.mean(axis=axes, keepdims=True)
    return mean, 1.0 / np.sqrt(data.var(axis=axes, keepdims=True) + eps)


def rms_norm(data: Array, weight: Array, *, eps: float) -> Array:
    """Divide each row by its root mean square, and multiply it by `weight`."""
    return np.asarray(data / np.sqrt(np.mean(data**2, axis=-1, keepdims=True) + eps) * weight)


def local_response_norm(data: Array, size: int, *, alpha: float, beta: float, k: float) -> Array:
    """Divide each value by (k + alpha * mean square over `size` neighbouring channels) ** beta."""
    channels = data.shape[1]
    around = [(0, 0)] * data.ndim
    around[1] = (size // 2, (size - 1) // 2)
    squares = np.pad(data**2, around)
    total = sum(squares[:, shift : shift + channels] for shift in range(size))
    return np.asarray(data / (k + alpha * total / size) ** beta)


def weight_norm(direction: Array, magnitude: Array) -> Array:
    """Scale each slice of `direction` along the first dim to the norm given by `magnitude`."""
    others = tuple(range(1, direction.ndim))
    norms = np.sqrt(np.sum(direction**2, axis=others, keepdims=True))
    return np.asarray(direction * (magnitude / norms))


def _standardise(data: Array, axes: tuple[int, ...], eps: float) -> Array:
    mean, scale = compute_mean_and_rstd(data, axes, eps)
    return (data - mean) * scale


def _channel(values: Array, data: Array) -> Array:
    return values.reshape(-1, *(1,) * (data.ndim - 2))


def _scale_and_shift(data: Array, weight: Affine, bias: Affine) -> Array:
    scaled = data if weight is None else data * _channel(weight, data)
    return scaled if bias is None else scaled + _channel(bias, data)


def renorm(data: Array, p: float, dim: int, maxnorm: float) -> Array:
    """Scale slices along `dim` whose p-norm is above `maxnorm` to the norm `maxnorm`."""
    others = tuple(d for d in range(data.ndim) if d != dim)
    norm = (np.abs(data) ** p).sum(others, keepdims=True) ** (1 / p)
    return np.asarray(data * np.where(norm > maxnorm, maxnorm / (norm + 1e-7), 1.0))


def cosine_similarity(lhs: Array, rhs: Array) -> Array:
    """Return the cosine of the angle between vectors along the last dim."""
    lengths = np.linalg.norm(lhs, axis=-1) * np.linalg.norm(rhs, axis=-1)
    return np.asarray((lhs * rhs).sum(-1) / lengths)


def normalize(data: Array, dim: int = -1, eps: float = 1e-12) -> Array:
    """Scale vectors along `dim` to Euclidean norm one."""
    return np.asarray(data / np.maximum(np.linalg.norm(data, axis=dim, keepdims=True), eps))
