"""Normalisation: values brought to mean zero and deviation one over some dims, then scaled and shifted."""

from __future__ import annotations

import numpy as np

Affine = np.ndarray | None


def batch_norm(
    data: np.ndarray,
    running_mean: Affine = None,
    running_var: Affine = None,
    weight: Affine = None,
    bias: Affine = None,
    *,
    training: bool,
    eps: float,
) -> np.ndarray:
    """Each channel normalised over the batch and space, or by given statistics."""
    if training:
        centred = _standardised(data, tuple(d for d in range(data.ndim) if d != 1), eps)
    else:
        assert running_mean is not None and running_var is not None
        centred = (data - _channel(running_mean, data)) / np.sqrt(_channel(running_var, data) + eps)
    return _per_channel(centred, weight, bias)


def layer_norm(data: np.ndarray, weight: Affine = None, bias: Affine = None, *, dims: int, eps: float) -> np.ndarray:
    """Each sample normalised over its last dims."""
    centred = _standardised(data, tuple(range(-dims, 0)), eps)
    scaled = centred if weight is None else centred * weight
    return scaled if bias is None else scaled + bias


def group_norm(
    data: np.ndarray, num_groups: int, weight: Affine = None, bias: Affine = None, *, eps: float
) -> np.ndarray:
    """Each group of channels of each sample normalised; as many groups as channels is instance normalisation."""
    grouped = data.reshape(data.shape[0], num_groups, -1)
    return _per_channel(_standardised(grouped, (2,), eps).reshape(data.shape), weight, bias)


def statistics(data: np.ndarray, axes: tuple[int, ...], eps: float) -> tuple[np.ndarray, np.ndarray]:
    """The mean and one over the deviation, as the native normalisations return them beside their result."""
    mean = data.mean(axis=axes, keepdims=True)
    return mean, 1.0 / np.sqrt(data.var(axis=axes, keepdims=True) + eps)


def rms_norm(data: np.ndarray, weight: np.ndarray, *, eps: float) -> np.ndarray:
    """Each row divided by its root mean square."""
    return data / np.sqrt(np.mean(data**2, axis=-1, keepdims=True) + eps) * weight


def local_response_norm(data: np.ndarray, size: int, *, alpha: float, beta: float, k: float) -> np.ndarray:
    """Each value divided by a power of the mean square over neighbouring channels."""
    channels = data.shape[1]
    around = [(0, 0)] * data.ndim
    around[1] = (size // 2, (size - 1) // 2)
    squares = np.pad(data**2, around)
    total = sum(squares[:, shift : shift + channels] for shift in range(size))
    return np.asarray(data / (k + alpha * total / size) ** beta)


def weight_norm(direction: np.ndarray, magnitude: np.ndarray) -> np.ndarray:
    """A weight of given direction, whose slices along the first dim have given norms."""
    others = tuple(range(1, direction.ndim))
    return direction * (magnitude / np.sqrt(np.sum(direction**2, axis=others, keepdims=True)))


def _standardised(data: np.ndarray, axes: tuple[int, ...], eps: float) -> np.ndarray:
    mean, scale = statistics(data, axes, eps)
    return (data - mean) * scale


def _channel(values: np.ndarray, data: np.ndarray) -> np.ndarray:
    return values.reshape(-1, *(1,) * (data.ndim - 2))


def _per_channel(data: np.ndarray, weight: Affine, bias: Affine) -> np.ndarray:
    scaled = data if weight is None else data * _channel(weight, data)
    return scaled if bias is None else scaled + _channel(bias, data)
