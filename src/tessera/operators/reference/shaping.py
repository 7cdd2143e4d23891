"""Shapes rearranged: patches of images, pixels and channels exchanged, products of lists."""

from __future__ import annotations

import numpy as np

from tessera.operators.arrays import Array
from tessera.operators.reference.windows import count, taps


def cartesian_prod(first: Array, second: Array) -> Array:
    """Every pair of a value of one vector and a value of the other, a pair a row."""
    return np.stack([np.repeat(first, len(second)), np.tile(second, len(first))], axis=-1)


def combinations(data: Array) -> Array:
    """Every pair of two values of a vector, in their order, a pair a row."""
    return data[np.stack(np.triu_indices(len(data), 1), axis=-1)]


def unfold(data: Array, kernel_size: int, padding: int = 0, stride: int = 1) -> Array:
    """The patches under a window, a column each: (n, channels * kernel * kernel, patches)."""
    n, channels, *_ = data.shape
    padded = np.pad(data, [(0, 0), (0, 0), (padding, padding), (padding, padding)])
    space = [count(size, kernel_size, stride, 1) for size in padded.shape[2:]]
    seen = [view for _, view in taps(padded, (kernel_size,) * 2, (stride,) * 2, (1, 1), space)]
    return np.stack(seen, axis=2).reshape(n, channels * kernel_size**2, -1)


def fold(data: Array, output_size: tuple[int, int], kernel_size: int, padding: int = 0, stride: int = 1) -> Array:
    """Patches added back into images: the transpose of `unfold`."""
    n, channels = data.shape[0], data.shape[1] // kernel_size**2
    padded = np.zeros((n, channels, *(size + 2 * padding for size in output_size)), dtype=data.dtype)
    space = [count(size, kernel_size, stride, 1) for size in padded.shape[2:]]
    patches = data.reshape(n, channels, kernel_size**2, *space)
    for number, (_, view) in enumerate(taps(padded, (kernel_size,) * 2, (stride,) * 2, (1, 1), space)):
        view += patches[:, :, number]
    return padded[:, :, padding : padding + output_size[0], padding : padding + output_size[1]]


def pixel_shuffle(data: Array, factor: int) -> Array:
    """Channels laid out as pixels: (n, c * factor^2, h, w) becomes (n, c, h * factor, w * factor)."""
    n, channels, h, w = data.shape
    split = data.reshape(n, channels // factor**2, factor, factor, h, w)
    return split.transpose(0, 1, 4, 2, 5, 3).reshape(n, channels // factor**2, h * factor, w * factor)


def pixel_unshuffle(data: Array, factor: int) -> Array:
    """Pixels laid out as channels: the inverse of `pixel_shuffle`."""
    n, channels, h, w = data.shape
    split = data.reshape(n, channels, h // factor, factor, w // factor, factor)
    return split.transpose(0, 1, 3, 5, 2, 4).reshape(n, channels * factor**2, h // factor, w // factor)


def channel_shuffle(data: Array, groups: int) -> Array:
    """Channels of several groups taken in turns."""
    n, channels, *space = data.shape
    return data.reshape(n, groups, channels // groups, *space).swapaxes(1, 2).reshape(data.shape)


def view_as_complex(data: Array) -> Array:
    """Pairs of real and imaginary parts as complex numbers."""
    return np.asarray(data[..., 0] + 1j * data[..., 1])


def view_as_real(data: Array) -> Array:
    """Complex numbers as pairs of their real and imaginary parts."""
    return np.stack([data.real, data.imag], axis=-1)


def triangle(data: Array, *, upper: bool = False) -> Array:
    """The lower or the upper triangle of a matrix, the rest zero."""
    rows, columns = np.indices(data.shape, sparse=True)
    return np.where(columns >= rows if upper else columns <= rows, data, 0.0)


def diag_embed(data: Array) -> Array:
    """Rows as the diagonals of square matrices."""
    return data[..., None] * np.eye(data.shape[-1])
