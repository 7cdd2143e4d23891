"""Reference implementations that move or convert values: patches, pixels and channels, indexing, quantisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from tessera.operators.arrays import Array
from tessera.operators.reference.windows import count, taps


def cartesian_prod(first: Array, second: Array) -> Array:
    """Return all pairs (value of `first`, value of `second`), one pair per row."""
    return np.stack([np.repeat(first, len(second)), np.tile(second, len(first))], axis=-1)


def combinations(data: Array) -> Array:
    """Return all pairs of elements of a vector, in the order of their indices, one pair per row."""
    return data[np.stack(np.triu_indices(len(data), 1), axis=-1)]


def unfold(data: Array, kernel_size: int, padding: int = 0, stride: int = 1) -> Array:
    """Return the patches under a sliding window as columns (im2col): (n, channels * kernel * kernel, patches)."""
    n, channels, *_ = data.shape
    padded = np.pad(data, [(0, 0), (0, 0), (padding, padding), (padding, padding)])
    space = [count(size, kernel_size, stride, 1) for size in padded.shape[2:]]
    views = [view for _, view in taps(padded, (kernel_size,) * 2, (stride,) * 2, (1, 1), space)]
    return np.stack(views, axis=2).reshape(n, channels * kernel_size**2, -1)


def fold(data: Array, output_size: tuple[int, int], kernel_size: int, padding: int = 0, stride: int = 1) -> Array:
    """Add patches into images (col2im), the transpose of `unfold`."""
    n, channels = data.shape[0], data.shape[1] // kernel_size**2
    padded = np.zeros((n, channels, *(size + 2 * padding for size in output_size)), dtype=data.dtype)
    space = [count(size, kernel_size, stride, 1) for size in padded.shape[2:]]
    patches = data.reshape(n, channels, kernel_size**2, *space)
    for number, (_, view) in enumerate(taps(padded, (kernel_size,) * 2, (stride,) * 2, (1, 1), space)):
        view += patches[:, :, number]
    return padded[:, :, padding : padding + output_size[0], padding : padding + output_size[1]]


def pixel_shuffle(data: Array, factor: int) -> Array:
    """Rearrange channels as pixels: (n, c * factor^2, h, w) becomes (n, c, h * factor, w * factor)."""
    n, channels, h, w = data.shape
    split = data.reshape(n, channels // factor**2, factor, factor, h, w)
    return split.transpose(0, 1, 4, 2, 5, 3).reshape(n, channels // factor**2, h * factor, w * factor)


def pixel_unshuffle(data: Array, factor: int) -> Array:
    """Rearrange pixels as channels: the inverse of `pixel_shuffle`."""
    n, channels, h, w = data.shape
    split = data.reshape(n, channels, h // factor, factor, w // factor, factor)
    return split.transpose(0, 1, 3, 5, 2, 4).reshape(n, channels * factor**2, h // factor, w // factor)


def channel_shuffle(data: Array, groups: int) -> Array:
    """Interleave the channels (dim 1) of `groups` groups."""
    n, channels, *space = data.shape
    return data.reshape(n, groups, channels // groups, *space).swapaxes(1, 2).reshape(data.shape)


def view_as_complex(data: Array) -> Array:
    """Convert (real, imaginary) pairs in the last dim to complex numbers."""
    return np.asarray(data[..., 0] + 1j * data[..., 1])


def view_as_real(data: Array) -> Array:
    """Convert complex numbers to (real, imaginary) pairs in an additional last dim."""
    return np.stack([data.real, data.imag], axis=-1)


def triangle(data: Array, *, upper: bool = False) -> Array:
    """Return the lower or upper triangle of a matrix, with zeros elsewhere."""
    rows, columns = np.indices(data.shape, sparse=True)
    return np.where(columns >= rows if upper else columns <= rows, data, 0.0)


def diag_embed(data: Array) -> Array:
    """Return square matrices whose diagonals are the rows of `data`, with zeros elsewhere."""
    return data[..., None] * np.eye(data.shape[-1])


def identity(data: Array) -> Array:
    """Return the values unchanged, for conversions that change only how values are stored."""
    return data


def conj(data: Array) -> Array:
    """Return the complex conjugate; torch computes it lazily."""
    return np.conj(data)


def quantise(data: Array, scale: Any, zero_point: Any) -> Array:
    """Quantise values to int8 with a scale and a zero point, and dequantise them; ties round to even."""
    steps = np.clip(np.rint(data / scale) + zero_point, -128, 127)
    return np.asarray((steps - zero_point) * scale)


def index_along(index: Array, dim: int) -> tuple[Array, ...]:
    """Convert an index along `dim` to an index over all dims, as in `np.take_along_axis`.

    >>> data = np.array([[1, 2], [3, 4]])
    >>> data[index_along(np.array([[1], [0]]), 1)]
    array([[2],
           [3]])
    """
    indices: list[Array] = list(np.indices(index.shape, sparse=True))
    indices[dim] = index
    return tuple(indices)


def write_at(data: Array, where: Any, values: Any) -> Array:
    """Return a copy of `data` with `values` written at unique indices."""
    result = data.copy()
    result[where] = values
    return result


def add_at(data: Array, where: Any, values: Array) -> Array:
    """Return a copy of `data` with `values` added at the indices; repeated indices accumulate."""
    result = data.copy()
    np.add.at(result, where, values)
    return result


def maximum_at(data: Array, where: Any, values: Array) -> Array:
    """Return a copy of `data` whose indexed elements are the maximum of themselves and `values` (scatter `amax`)."""
    result = data.copy()
    np.maximum.at(result, where, values)
    return result


def mean_at(data: Array, where: Any, values: Array) -> Array:
    """Return a copy of `data` whose indexed elements are the mean of themselves and `values` (scatter `mean`)."""
    count = add_at(np.ones(data.shape), where, np.ones(values.shape))
    return add_at(data, where, values) / count


def nonzero_static(data: Array) -> Array:
    """Return the indices of non-zero values, one per row, padded with rows of -1 to `data.size` rows."""
    indices = np.argwhere(data)
    return np.pad(indices, [(0, data.size - len(indices)), (0, 0)], constant_values=-1)
