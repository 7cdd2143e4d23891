"""Reference implementations of pooling: a maximum, mean or p-norm over windows, bins or randomly placed windows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tessera.operators.arrays import Array
from tessera.operators.reference.windows import Each, count, per_dim, taps


def max_pool(data: Array, kernel_size: Each, stride: Each, padding: Each = 0, dilation: Each = 1) -> Array:
    """Return the maximum of each window."""
    views = _iter_views(data, kernel_size, stride, padding, dilation, fill=-np.inf)
    result = next(views).copy()
    for view in views:
        np.maximum(result, view, out=result)
    return result


def max_pool_with_indices(
    data: Array, kernel_size: Each, stride: Each, padding: Each = 0, dilation: Each = 1
) -> tuple[Array, Array]:
    """Return the maximum of each window, and the flat index of its first occurrence in the unpadded plane."""
    space = data.shape[2:]
    places = np.broadcast_to(np.arange(np.prod(space)).reshape(space), data.shape)
    values = _iter_views(data, kernel_size, stride, padding, dilation, fill=-np.inf)
    positions = _iter_views(places, kernel_size, stride, padding, dilation, fill=-1)
    best, where = next(values).copy(), next(positions).copy()
    for value, position in zip(values, positions, strict=True):
        better = value > best
        best[better], where[better] = value[better], position[better]
    return best, where


def avg_pool(data: Array, kernel_size: Each, stride: Each, padding: Each = 0, count_include_pad: bool = True) -> Array:
    """Return the mean of each window; padding counts as zeros if `count_include_pad`."""
    total = sum(_iter_views(data, kernel_size, stride, padding, 1, fill=0.0))
    present = np.ones((1, 1, *data.shape[2:]))
    outside = 1.0 if count_include_pad else 0.0
    return np.asarray(total / sum(_iter_views(present, kernel_size, stride, padding, 1, fill=outside)))


def lp_pool(data: Array, norm_type: float, kernel_size: Each, stride: Each) -> Array:
    """Return the p-norm of each window."""
    powers = sum(_iter_views(np.abs(data) ** norm_type, kernel_size, stride, 0, 1, fill=0.0))
    return np.asarray(powers ** (1.0 / norm_type))


def adaptive_avg_pool(data: Array, output_size: Each) -> Array:
    """Return the mean of each of `output_size` bins per dim."""
    return _reduce_bins(data, output_size, np.mean)


def adaptive_max_pool(data: Array, output_size: Each) -> Array:
    """Return the maximum of each of `output_size` bins per dim."""
    return _reduce_bins(data, output_size, np.max)


def fractional_max_pool(data: Array, samples: Array, kernel_size: Each, output_size: Each) -> Array:
    """Return the maximum of each window; random samples (n, channels, dims) determine the window positions.

    As in torch, samples of images are ordered (columns, rows); samples of volumes follow the order of the dims.
    """
    dims = data.ndim - 2
    kernel, space = per_dim(kernel_size, dims), per_dim(output_size, dims)
    result = data
    for dim in range(dims):
        sample = samples[..., 1 - dim if dims == 2 else dim]
        starts = _fractional_starts(sample, data.shape[2 + dim], kernel[dim], space[dim])
        axis = 2 + dim
        lined = starts.reshape(*starts.shape[:2], *(1,) * dim, -1, *(1,) * (dims - 1 - dim))
        result = np.max(
            [np.take_along_axis(result, lined + offset, axis=axis) for offset in range(kernel[dim])], axis=0
        )
    return result


def _fractional_starts(sample: Array, size: int, kernel: int, outputs: int) -> Array:
    """Return the window starts along a dim: (size - kernel) / (outputs - 1) apart, shifted by `sample`, as integers."""
    step = (size - kernel) / (outputs - 1)
    places = np.floor((np.arange(outputs) + sample[..., None]) * step) - np.floor(sample[..., None] * step)
    places[..., -1] = size - kernel
    return np.asarray(places, dtype=np.int64)


def max_unpool(data: Array, index: Array, output_size: tuple[int, ...]) -> Array:
    """Write each value to the flat index `index` of its output plane, with zeros elsewhere."""
    n, channels = data.shape[:2]
    planes = np.zeros((n, channels, int(np.prod(output_size))))
    np.put_along_axis(planes, index.reshape(n, channels, -1), data.reshape(n, channels, -1), axis=2)
    return planes.reshape(n, channels, *output_size)


def _iter_views(
    data: Array, kernel_size: Each, stride: Each, padding: Each, dilation: Each, fill: float
) -> Iterator[Array]:
    """Return an iterator with one view per kernel element: the values of all windows at that element."""
    dims = data.ndim - 2
    kernel, steps, pads, gaps = (per_dim(value, dims) for value in (kernel_size, stride, padding, dilation))
    padded = np.pad(data, [(0, 0), (0, 0), *((p, p) for p in pads)], constant_values=fill)
    space = [count(padded.shape[2 + d], kernel[d], steps[d], gaps[d]) for d in range(dims)]
    return (view for _, view in taps(padded, kernel, steps, gaps, space))


def _reduce_bins(data: Array, output_size: Each, reduce: Callable[..., Array]) -> Array:
    """Reduce over bins, dim by dim; bin i of m over n values is floor(i n / m) to ceil((i + 1) n / m), exclusive."""
    for dim, bins in enumerate(per_dim(output_size, data.ndim - 2)):
        axis = 2 + dim
        size = data.shape[axis]
        edges = [(i * size // bins, -(-(i + 1) * size // bins)) for i in range(bins)]
        parts = [reduce(np.take(data, range(low, high), axis=axis), axis=axis) for low, high in edges]
        data = np.stack(parts, axis=axis)
    return data
