"""Fourier transforms: complex and real, one and more dims, lengths other than powers of two, short-time transforms."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tessera.operators.catalogue.families import Sizes
from tessera.operators.draws import uniform
from tessera.operators.operator import Input, Operator, OperatorCall, make_sizes
from tessera.operators.work import CountFunction

# shapes of complex inputs: (batch, length), (batch, height, width), (depth, height, width)
ROW_SCALES = ((8, 256), (128, 4096), (512, 16384))
IMAGE_SCALES = ((1, 32, 32), (8, 256, 256), (16, 1024, 1024))
VOLUME_SCALES = ((8, 8, 16), (64, 64, 64), (192, 192, 192))


def _make_complex(*scales: tuple[int, ...], half: bool = False) -> Sizes:
    """Make complex inputs; with `half`, the last dim n is n // 2 + 1, as in the spectrum of n real values."""
    return make_sizes(
        lambda *shape: {"data": Input(shape=(*shape[:-1], shape[-1] // 2 + 1) if half else shape, kind="complex")},
        *scales,
    )


def _make_real(*scales: tuple[int, ...]) -> Sizes:
    return make_sizes(lambda *shape: {"data": Input(shape=shape)}, *scales)


def _count_transform_flops(dims: int, per_value: float) -> CountFunction:
    """Count `per_value` n log2 n FLOPs for n values: 5 n log2 n for a complex transform, 2.5 n log2 n for a real one.

    n is the number of elements of the larger of input and output, which in a real transform is the real array.
    """

    def count_flops(call: OperatorCall) -> float:
        sides = (call.shapes["data"], call.outputs[0])
        shape = max(sides, key=math.prod)
        return per_value * math.prod(shape) * math.log2(math.prod(shape[-dims:]))

    return count_flops


def _define_transform(
    name: str, sizes: Sizes, dims: int, *, real: bool, function: str = "", library: str = "np"
) -> Operator:
    """Define a transform; `function` is its name in torch and in the reference `library` (default: from `name`)."""
    called = function or name.removeprefix("fft_")
    return Operator(
        name=name,
        category="fft",
        torch=f"torch.fft.{called}(data)",
        reference=f"{library}.fft.{called}(data)",
        sizes=sizes,
        flops=_count_transform_flops(dims, 2.5 if real else 5.0),
        backward_flops=1.0,
        backward_bytes=1.0,
        dtypes=("float32", "float64"),
    )


def _define_shift(name: str) -> Operator:
    """Define a shift of the zero frequency to the centre or back (fftshift, ifftshift), which copies the data."""
    return Operator(
        name=f"fft_{name}",
        category="fft",
        torch=f"torch.fft.{name}(data)",
        reference=f"np.fft.{name}(data)",
        sizes=_make_real((64, 64), (1024, 1024), (4096, 4096)),
        backward_bytes=1.0,
    )


def _define_frequencies(name: str) -> Operator:
    """Define the sample frequencies (fftfreq, rfftfreq) of a transform as long as `data`."""
    return Operator(
        name=f"fft_{name}",
        category="fft",
        torch=f"torch.fft.{name}(n, spacing, dtype=data.dtype)",
        reference=f"np.fft.{name}(n, spacing)",
        sizes=_make_real((4096,), (1 << 20,), (1 << 24,)),
        attributes=lambda shapes: {"n": shapes["data"][0], "spacing": 0.5},
        moved=lambda call: float(sum(call.written)),
        differentiable=False,
        dtypes=("float32", "float64"),  # integers up to a million, which 16-bit floats cannot represent
    )


def _make_windowed(shape: tuple[int, ...], kind: str, n_fft: int) -> dict[str, Input]:
    """Make a signal or its spectra, and a window without values near zero, because istft divides by the window."""
    return {"data": Input(shape=shape, kind=kind), "window": Input(shape=(n_fft,), draw=uniform(0.5, 1.0), grad=False)}


def _count_frame_flops(call: OperatorCall) -> float:
    """Count the FLOPs of a short-time transform: for each frame, a real transform and a product with the window."""
    n_fft = call.attributes["n_fft"]
    spectra = next(shape for shape in (*call.outputs, call.shapes["data"]) if len(shape) == 3)
    return float(spectra[0] * spectra[2] * n_fft * (2.5 * math.log2(n_fft) + 1.0))


def _get_frame_sizes(shapes: Mapping[str, Any]) -> dict[str, int]:
    return {"n_fft": shapes["window"][0], "hop_length": shapes["window"][0] // 4}


OPERATORS = (
    _define_transform("fft_fft", _make_complex(*ROW_SCALES), 1, real=False),
    _define_transform("fft_ifft", _make_complex(*ROW_SCALES), 1, real=False),
    _define_transform("fft_rfft", _make_real(*ROW_SCALES), 1, real=True),
    _define_transform("fft_irfft", _make_complex(*ROW_SCALES, half=True), 1, real=True),
    _define_transform("fft_hfft", _make_complex(*ROW_SCALES, half=True), 1, real=True),
    _define_transform("fft_ihfft", _make_real(*ROW_SCALES), 1, real=True),
    _define_transform("fft_fft_real", _make_real(*ROW_SCALES), 1, real=False, function="fft"),
    _define_transform(
        "fft_fft_prime", _make_complex((8, 251), (128, 4093), (512, 16381)), 1, real=False, function="fft"
    ),
    _define_transform(
        "fft_fft_short", _make_complex((128, 16), (32768, 16), (1 << 19, 16)), 1, real=False, function="fft"
    ),
    _define_transform("fft_fft_long", _make_complex((2048,), (1 << 19,), (1 << 22,)), 1, real=False, function="fft"),
    _define_transform("fft_rfft_long", _make_real((4096,), (1 << 20,), (1 << 23,)), 1, real=True, function="rfft"),
    _define_transform("fft_fft2", _make_complex(*IMAGE_SCALES), 2, real=False),
    _define_transform("fft_ifft2", _make_complex(*IMAGE_SCALES), 2, real=False),
    _define_transform("fft_rfft2", _make_real(*IMAGE_SCALES), 2, real=True),
    _define_transform("fft_irfft2", _make_complex(*IMAGE_SCALES, half=True), 2, real=True),
    _define_transform("fft_hfft2", _make_complex(*IMAGE_SCALES, half=True), 2, real=True, library="scipy"),
    _define_transform("fft_ihfft2", _make_real(*IMAGE_SCALES), 2, real=True, library="scipy"),
    _define_transform("fft_fftn", _make_complex(*VOLUME_SCALES), 3, real=False),
    _define_transform("fft_ifftn", _make_complex(*VOLUME_SCALES), 3, real=False),
    _define_transform("fft_rfftn", _make_real(*VOLUME_SCALES), 3, real=True),
    _define_transform("fft_irfftn", _make_complex(*VOLUME_SCALES, half=True), 3, real=True),
    _define_transform("fft_hfftn", _make_complex(*VOLUME_SCALES, half=True), 3, real=True, library="scipy"),
    _define_transform("fft_ihfftn", _make_real(*VOLUME_SCALES), 3, real=True, library="scipy"),
    _define_shift("fftshift"),
    _define_shift("ifftshift"),
    _define_frequencies("fftfreq"),
    _define_frequencies("rfftfreq"),
    Operator(
        name="stft",
        category="fft",
        torch="torch.stft(data, n_fft, hop_length, window=window, return_complex=True)",
        reference="ref.stft(data, window, n_fft=n_fft, hop_length=hop_length)",
        sizes=make_sizes(
            lambda n, t, f: _make_windowed((n, t), "float", f), (1, 4096, 256), (8, 65536, 512), (16, 480000, 1024)
        ),
        attributes=_get_frame_sizes,
        flops=_count_frame_flops,
        backward_flops=1.0,
        dtypes=("float32", "float64"),
    ),
    Operator(
        name="istft",
        category="fft",
        torch="torch.istft(data, n_fft, hop_length, window=window)",
        reference="ref.istft(data, window, n_fft=n_fft, hop_length=hop_length)",
        sizes=make_sizes(
            lambda n, frames, f: _make_windowed((n, f // 2 + 1, frames), "complex", f),
            (1, 64, 256),
            (8, 512, 512),
            (16, 1875, 1024),
        ),
        attributes=_get_frame_sizes,
        flops=_count_frame_flops,
        backward_flops=1.0,
        dtypes=("float32", "float64"),
    ),
)
