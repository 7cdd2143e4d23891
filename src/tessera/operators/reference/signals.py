"""Reference implementations of image resampling and short-time Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np

from tessera.operators.arrays import Array


def interpolate(
    data: Array, size: Sequence[int], mode: str, align_corners: bool = False, antialias: bool = False
) -> Array:
    """Resize data (n, channels, *space) to `size`, with one matrix of interpolation weights per spatial dim."""
    result = data
    for dim, after in enumerate(size, start=2):
        weights = _weights(mode, data.shape[dim], after, align_corners, antialias)
        result = np.moveaxis(np.tensordot(weights, result, (1, dim)), 0, dim)
    return result


def _weights(mode: str, before: int, after: int, align_corners: bool, antialias: bool) -> Array:
    """Return the interpolation weight of each input value (columns) in each output value (rows)."""
    out = np.arange(after)
    ratio = before / after
    if mode.startswith("nearest"):
        return np.asarray(np.eye(before)[((out + (0.5 if mode == "nearest-exact" else 0.0)) * ratio).astype(int)])
    if mode == "area":
        starts, ends = out * before // after, -(-(out + 1) * before // after)
        inside = (np.arange(before) >= starts[:, None]) & (np.arange(before) < ends[:, None])
        return np.asarray(inside / inside.sum(1, keepdims=True))
    if antialias:
        wide = max(ratio, 1.0)
        distance = (np.arange(before) + 0.5 - ((out + 0.5) * ratio)[:, None]) / wide
        heights = _cubic(distance, -0.5) if mode == "bicubic" else _hat(distance)
        return np.asarray(heights / heights.sum(1, keepdims=True))
    place = out * (before - 1) / max(after - 1, 1) if align_corners else (out + 0.5) * ratio - 0.5
    if mode == "bicubic":
        return _taps(place, before, range(-1, 3), lambda distance: _cubic(distance, -0.75))
    return _taps(np.clip(place, 0, before - 1), before, range(2), _hat)


def _taps(place: Array, before: int, offsets: Sequence[int], height: Callable[[Array], Array]) -> Array:
    """Return interpolation weights around each coordinate; weights beyond an edge are added to the edge value."""
    weights = np.zeros((len(place), before))
    for offset in offsets:
        tap = np.floor(place).astype(int) + offset
        np.add.at(weights, (np.arange(len(place)), np.clip(tap, 0, before - 1)), height(place - tap))
    return weights


def _hat(distance: Array) -> Array:
    return np.asarray(np.maximum(1 - np.abs(distance), 0.0))


def _cubic(distance: Array, a: float) -> Array:
    """Return Keys' cubic convolution kernel with parameter `a` at each distance."""
    x = np.abs(distance)
    near = (a + 2) * x**3 - (a + 3) * x**2 + 1
    far = a * (x**3 - 5 * x**2 + 8 * x - 4)
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def grid_sample(data: Array, grid: Array, mode: str = "bilinear", padding_mode: str = "zeros") -> Array:
    """Sample data (n, channels, *space) at the coordinates of a grid (n, *out, dims); -1 and 1 are the outer edges.

    Coordinates are in reverse order of the spatial dims: (x, y) for data with (height, width).
    """
    space = data.shape[2:]
    places = [(grid[..., -1 - d] + 1) * size / 2 - 0.5 for d, size in enumerate(space)]
    if padding_mode == "border":
        places = [np.clip(place, 0, size - 1) for place, size in zip(places, space, strict=True)]
    starts = [np.rint(place) if mode == "nearest" else np.floor(place) for place in places]
    batch = np.arange(len(data)).reshape(-1, *(1,) * len(space))
    result = np.zeros((*grid.shape[:-1], data.shape[1]))
    for corner in product((0,) if mode == "nearest" else (0, 1), repeat=len(space)):
        weight, index = np.ones(grid.shape[:-1]), []
        for place, start, step, size in zip(places, starts, corner, space, strict=True):
            tap = start + step
            height = np.ones(tap.shape) if mode == "nearest" else _hat(place - tap)
            weight = weight * np.where((tap >= 0) & (tap < size), height, 0.0)
            index.append(np.clip(tap, 0, size - 1).astype(int))
        result += weight[..., None] * np.moveaxis(data, 1, -1)[(batch, *index)]
    return np.moveaxis(result, -1, 1)


def affine_grid(theta: Array, size: tuple[int, int, int, int]) -> Array:
    """Return the sampling grid (n, height, width, 2) of affine maps (n, 2, 3), for images of a given `size`."""
    y, x = ((2 * np.arange(count) + 1) / count - 1 for count in size[2:])
    base = np.stack([*np.meshgrid(x, y), np.ones((len(y), len(x)))], axis=-1)
    return np.asarray(np.einsum("hwk,nik->nhwi", base, theta))


def stft(data: Array, window: Array, *, n_fft: int, hop_length: int) -> Array:
    """Return the spectra (n, frequencies, frames) of data (n, time), padded by reflection at both ends."""
    padded = np.pad(data, [(0, 0), (n_fft // 2, n_fft // 2)], mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, n_fft, axis=1)[:, ::hop_length]
    return np.fft.rfft(frames * window, axis=-1).swapaxes(1, 2)


def istft(data: Array, window: Array, *, n_fft: int, hop_length: int) -> Array:
    """Return the signal (n, time) with the spectra (n, frequencies, frames), by overlap-add."""
    frames = np.fft.irfft(data.swapaxes(1, 2), n=n_fft, axis=-1) * window
    n, count, _ = frames.shape
    length = n_fft + hop_length * (count - 1)
    signal, envelope = np.zeros((n, length)), np.zeros(length)
    for number in range(count):
        span = slice(number * hop_length, number * hop_length + n_fft)
        signal[:, span] += frames[:, number]
        envelope[span] += window**2
    inner = slice(n_fft // 2, length - n_fft // 2)
    return signal[:, inner] / envelope[inner]
