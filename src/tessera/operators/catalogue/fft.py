"""Fourier transforms: complex and real, of one and more dims, of short and awkward lengths."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from tessera.operators.draws import uniform
from tessera.operators.operator import Call, Input, Operator, by_size

Sizes = Mapping[str, Mapping[str, Input]]
Flops = Callable[[Call], float]

# (batch, length), the sides of an image or a volume, of complex values
ROWS = ((8, 256), (128, 4096), (512, 16384))
IMAGES = ((1, 32, 32), (8, 256, 256), (16, 1024, 1024))
VOLUMES = ((8, 8, 16), (64, 64, 64), (192, 192, 192))


def _complex(*scales: tuple[int, ...], half: bool = False) -> Sizes:
    """Complex values; the spectrum of real ones is half as long in its last dim."""
    return by_size(
        lambda *shape: {"data": Input(shape=(*shape[:-1], shape[-1] // 2 + 1) if half else shape, kind="complex")},
        *scales,
    )


def _real(*scales: tuple[int, ...]) -> Sizes:
    return by_size(lambda *shape: {"data": Input(shape=shape)}, *scales)


def _transformed(dims: int, per_value: float) -> Flops:
    """The usual count for n values: 5 n log2 n, half of that where one side is real.

    Values are counted on the longer side, which is the real one where there is one.
    """

    def flops(call: Call) -> float:
        sides = (call.shapes["data"], call.outputs[0])
        shape = max(sides, key=math.prod)
        return per_value * math.prod(shape) * math.log2(math.prod(shape[-dims:]))

    return flops


def _transform(name: str, reference: str, sizes: Sizes, dims: int, *, real: bool, function: str = "") -> Operator:
    called = function or name.removeprefix("fft_")
    return Operator(
        name=name,
        category="fft",
        torch=f"torch.fft.{called}(data)",
        reference=f"{reference}(data)",
        sizes=sizes,
        flops=_transformed(dims, 2.5 if real else 5.0),
        backward_flops=1.0,
        backward_bytes=1.0,
        dtypes=("float32", "float64"),
    )


def _shift(name: str) -> Operator:
    """Quadrants exchanged: a copy."""
    return Operator(
        name=f"fft_{name}",
        category="fft",
        torch=f"torch.fft.{name}(data)",
        reference=f"np.fft.{name}(data)",
        sizes=_real((64, 64), (1024, 1024), (4096, 4096)),
        backward_bytes=1.0,
    )


def _frequencies(name: str) -> Operator:
    """The frequencies of a transform as long as the data."""
    return Operator(
        name=f"fft_{name}",
        category="fft",
        torch=f"torch.fft.{name}(n, spacing, dtype=data.dtype)",
        reference=f"np.fft.{name}(n, spacing)",
        sizes=_real((4096,), (1 << 20,), (1 << 24,)),
        attributes=lambda shapes: {"n": shapes["data"][0], "spacing": 0.5},
        moved=lambda call: float(sum(call.written)),
        differentiable=False,
        dtypes=("float32", "float64"),  # whole numbers up to a million, which 16 bits do not hold
    )


def _windowed(shape: tuple[int, ...], kind: str, n_fft: int) -> dict[str, Input]:
    """A signal or its spectra, and a window that is nowhere near zero, so that it can be divided by."""
    return {
        "data": Input(shape=shape, kind=kind),
        "window": Input(shape=(n_fft,), draw=uniform(0.5, 1.0), grad=False),
    }


def _frames(call: Call) -> float:
    """A real transform and a window for every frame."""
    n_fft = call.attributes["n_fft"]
    spectra = next(shape for shape in (*call.outputs, call.shapes["data"]) if len(shape) == 3)
    return float(spectra[0] * spectra[2] * n_fft * (2.5 * math.log2(n_fft) + 1.0))


def _hop(shapes: Mapping[str, Any]) -> dict[str, int]:
    return {"n_fft": shapes["window"][0], "hop_length": shapes["window"][0] // 4}


OPERATORS = (
    _transform("fft_fft", "np.fft.fft", _complex(*ROWS), 1, real=False),
    _transform("fft_ifft", "np.fft.ifft", _complex(*ROWS), 1, real=False),
    _transform("fft_rfft", "np.fft.rfft", _real(*ROWS), 1, real=True),
    _transform("fft_irfft", "np.fft.irfft", _complex(*ROWS, half=True), 1, real=True),
    _transform("fft_hfft", "np.fft.hfft", _complex(*ROWS, half=True), 1, real=True),
    _transform("fft_ihfft", "np.fft.ihfft", _real(*ROWS), 1, real=True),
    _transform("fft_fft_real", "np.fft.fft", _real(*ROWS), 1, real=False, function="fft"),
    _transform(
        "fft_fft_prime", "np.fft.fft", _complex((8, 251), (128, 4093), (512, 16381)), 1, real=False, function="fft"
    ),
    _transform(
        "fft_fft_short", "np.fft.fft", _complex((128, 16), (32768, 16), (1 << 19, 16)), 1, real=False, function="fft"
    ),
    _transform("fft_fft_long", "np.fft.fft", _complex((2048,), (1 << 19,), (1 << 22,)), 1, real=False, function="fft"),
    _transform("fft_rfft_long", "np.fft.rfft", _real((4096,), (1 << 20,), (1 << 23,)), 1, real=True, function="rfft"),
    _transform("fft_fft2", "np.fft.fft2", _complex(*IMAGES), 2, real=False),
    _transform("fft_ifft2", "np.fft.ifft2", _complex(*IMAGES), 2, real=False),
    _transform("fft_rfft2", "np.fft.rfft2", _real(*IMAGES), 2, real=True),
    _transform("fft_irfft2", "np.fft.irfft2", _complex(*IMAGES, half=True), 2, real=True),
    _transform("fft_hfft2", "scipy.fft.hfft2", _complex(*IMAGES, half=True), 2, real=True),
    _transform("fft_ihfft2", "scipy.fft.ihfft2", _real(*IMAGES), 2, real=True),
    _transform("fft_fftn", "np.fft.fftn", _complex(*VOLUMES), 3, real=False),
    _transform("fft_ifftn", "np.fft.ifftn", _complex(*VOLUMES), 3, real=False),
    _transform("fft_rfftn", "np.fft.rfftn", _real(*VOLUMES), 3, real=True),
    _transform("fft_irfftn", "np.fft.irfftn", _complex(*VOLUMES, half=True), 3, real=True),
    _transform("fft_hfftn", "scipy.fft.hfftn", _complex(*VOLUMES, half=True), 3, real=True),
    _transform("fft_ihfftn", "scipy.fft.ihfftn", _real(*VOLUMES), 3, real=True),
    _shift("fftshift"),
    _shift("ifftshift"),
    _frequencies("fftfreq"),
    _frequencies("rfftfreq"),
    Operator(
        name="stft",
        category="fft",
        torch="torch.stft(data, n_fft, hop_length, window=window, return_complex=True)",
        reference="ref.stft(data, window, n_fft=n_fft, hop_length=hop_length)",
        sizes=by_size(
            lambda n, t, f: _windowed((n, t), "float", f), (1, 4096, 256), (8, 65536, 512), (16, 480000, 1024)
        ),
        attributes=_hop,
        flops=_frames,
        backward_flops=1.0,
        dtypes=("float32", "float64"),
    ),
    Operator(
        name="istft",
        category="fft",
        torch="torch.istft(data, n_fft, hop_length, window=window)",
        reference="ref.istft(data, window, n_fft=n_fft, hop_length=hop_length)",
        sizes=by_size(
            lambda n, frames, f: _windowed((n, f // 2 + 1, frames), "complex", f),
            (1, 64, 256),
            (8, 512, 512),
            (16, 1875, 1024),
        ),
        attributes=_hop,
        flops=_frames,
        backward_flops=1.0,
        dtypes=("float32", "float64"),
    ),
)
