"""Short-time Fourier transforms of centred, overlapping frames."""

from __future__ import annotations

import numpy as np

from tessera.operators.arrays import Array


def stft(data: Array, window: Array, *, n_fft: int, hop_length: int) -> Array:
    """Spectra (n, frequencies, frames) of the frames of data (n, time), mirrored at both ends."""
    padded = np.pad(data, [(0, 0), (n_fft // 2, n_fft // 2)], mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, n_fft, axis=1)[:, ::hop_length]
    return np.fft.rfft(frames * window, axis=-1).swapaxes(1, 2)


def istft(data: Array, window: Array, *, n_fft: int, hop_length: int) -> Array:
    """The signal (n, time) whose frames have the spectra (n, frequencies, frames), by overlap and add."""
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
