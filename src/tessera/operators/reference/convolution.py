"""Reference implementations of convolutions: a sum over the elements of the kernel, for any number of spatial dims."""

from __future__ import annotations

import numpy as np

from tessera.operators.arrays import Array
from tessera.operators.reference.windows import Each, count, last_dims, per_dim, taps


def convolution(
    data: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    stride: Each = 1,
    padding: Each = 0,
    dilation: Each = 1,
    groups: int = 1,
) -> Array:
    """Cross-correlate data (n, channels, *space) with weight (out, channels / groups, *kernel)."""
    dims = data.ndim - 2
    steps, pads, gaps = (per_dim(value, dims) for value in (stride, padding, dilation))
    padded = np.pad(data, [(0, 0), (0, 0), *((p, p) for p in pads)])
    kernel = weight.shape[2:]
    space = tuple(count(padded.shape[2 + d], kernel[d], steps[d], gaps[d]) for d in range(dims))
    n, out, inside = data.shape[0], weight.shape[0], weight.shape[1]
    grouped = weight.reshape(groups, out // groups, *weight.shape[1:])
    result = np.zeros((n, groups, out // groups, int(np.prod(space))), dtype=np.result_type(data, weight))
    for tap, seen in taps(padded, kernel, steps, gaps, space):
        result += last_dims(grouped, tap) @ seen.reshape(n, groups, inside, -1)
    return _add_bias(result.reshape(n, out, *space), bias)


def transposed_convolution(
    data: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    stride: Each = 1,
    padding: Each = 0,
    output_padding: Each = 0,
    groups: int = 1,
    dilation: Each = 1,
) -> Array:
    """Return the transposed convolution of data (n, channels, *space) with weight (channels, out / groups, *kernel)."""
    dims = data.ndim - 2
    steps, pads, extra, gaps = (per_dim(value, dims) for value in (stride, padding, output_padding, dilation))
    n, channels, space = data.shape[0], data.shape[1], data.shape[2:]
    kernel, outside = weight.shape[2:], weight.shape[1]
    full = tuple((space[d] - 1) * steps[d] + gaps[d] * (kernel[d] - 1) + 1 + extra[d] for d in range(dims))
    grouped = weight.reshape(groups, channels // groups, *weight.shape[1:]).swapaxes(1, 2)
    flat = data.reshape(n, groups, channels // groups, -1)
    result = np.zeros((n, groups * outside, *full), dtype=np.result_type(data, weight))
    for tap, reached in taps(result, kernel, steps, gaps, space):
        reached += (last_dims(grouped, tap) @ flat).reshape(n, groups * outside, *space)
    inner = tuple(slice(p, size - p) for p, size in zip(pads, full, strict=True))
    return _add_bias(last_dims(result, inner), bias)


def time_convolution(data: Array, weight: Array, bias: Array, pad: int) -> Array:
    """Convolve data (time, n, channels) along time with weight (kernel, channels, out), as `torch.conv_tbc` does."""
    result = convolution(data.transpose(1, 2, 0), weight.transpose(2, 1, 0), bias, padding=pad)
    return result.transpose(2, 0, 1)


def _add_bias(result: Array, bias: Array | None) -> Array:
    return result if bias is None else result + bias.reshape(-1, *(1,) * (result.ndim - 2))
