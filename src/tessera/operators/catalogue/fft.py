"""Fourier transforms: complex and real, one and more dims, lengths other than powers of two, short-time transforms."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tessera.operators.catalogue.families import WIDE_DTYPES, Sizes, define_family
from tessera.operators.draws import uniform
from tessera.operators.operator import CountFunction, Input, Operator, OperatorCall, make_sizes

# shapes of complex inputs: (batch, length), (batch, height, width), (depth, height, width)
ROW_SCALES = ((8, 256), (128, 4096), (512, 16384))
IMAGE_SCALES = ((1, 32, 32), (8, 256, 256), (16, 1024, 1024))
VOLUME_SCALES = ((8, 8, 16), (64, 64, 64), (192, 192, 192))


def _make_data(*scales: tuple[int, ...], kind: str = "float", half: bool = False) -> Sizes:
    """Make one input; with `half`, the last dim n is n // 2 + 1, as in the spectrum of n real values."""
    return make_sizes(
        lambda *shape: {"data": Input((*shape[:-1], shape[-1] // 2 + 1) if half else shape, kind=kind)}, *scales
    )


def _count_transform_flops(dims: int, per_value: float) -> CountFunction:
    """Count `per_value` n log2 n FLOPs for n values: 5 n log2 n for a complex transform, 2.5 n log2 n for a real one.

    n is the number of elements of the larger of input and output, which in a real transform is the real array.
    """

    def count_flops(call: OperatorCall) -> float:
        sides = (call.shapes["data"], call.outputs[0])
        shape = max(sides, key=math.prod)
        return per_value * math.prod(shape) * math.log2(math.prod(shape[-dims:]))

    return count_flops


_define_fft = define_family("fft", backward_flops=1.0, **WIDE_DTYPES)


def _define_transform(function: str, *scales: tuple[int, ...], variant: str = "") -> Operator:
    """Define a transform named `fft_FUNCTION_VARIANT`.

    The name of the function tells the number of dims, whether input or output is real, and which array is a half
    spectrum. `variant` is empty, a kind of length, or `real` for a complex transform of real values.
    """
    dims = {"2": 2, "n": 3}.get(function[-1], 1)
    inverse, real = function.startswith("i"), "r" in function or "h" in function
    half = real and inverse == ("r" in function)
    kind = "float" if variant == "real" or (real and not half) else "complex"
    library = "scipy" if "h" in function and dims > 1 else "np"
    return _define_fft(
        "_".join(filter(None, ("fft", function, variant))),
        sizes=_make_data(*scales, kind=kind, half=half),
        function=f"fft.{function}",
        libraries=("torch", library),
        flops=_count_transform_flops(dims, 2.5 if real else 5.0),
        backward_bytes=1.0,
    )


def _define_shift(name: str) -> Operator:
    """Define a shift of the zero frequency to the centre or back (fftshift, ifftshift), which copies the data."""
    sizes = _make_data((64, 64), (1024, 1024), (4096, 4096))
    return define_family("fft")(f"fft_{name}", sizes=sizes, function=f"fft.{name}", backward_bytes=1.0)


def _define_frequencies(name: str) -> Operator:
    """Define the sample frequencies (fftfreq, rfftfreq) of a transform as long as `data`."""
    return define_family("fft")(
        f"fft_{name}",
        f"torch.fft.{name}(n, spacing, dtype=data.dtype)",
        f"np.fft.{name}(n, spacing)",
        _make_data((4096,), (1 << 20,), (1 << 24,)),
        attributes=lambda shapes: {"n": shapes["data"][0], "spacing": 0.5},
        moved=lambda call: float(sum(call.written)),
        differentiable=False,
        **WIDE_DTYPES,  # integers up to a million, which 16-bit floats cannot represent
    )


def _make_windowed(shape: tuple[int, ...], kind: str, n_fft: int) -> dict[str, Input]:
    """Make a signal or its spectra, and a window without values near zero, because istft divides by the window."""
    return {"data": Input(shape, kind=kind), "window": Input((n_fft,), uniform(0.5, 1.0), grad=False)}


def _count_frame_flops(call: OperatorCall) -> float:
    """Count the FLOPs of a short-time transform: for each frame, a real transform and a product with the window."""
    n_fft = call.attributes["n_fft"]
    spectra = next(shape for shape in (*call.outputs, call.shapes["data"]) if len(shape) == 3)
    return float(spectra[0] * spectra[2] * n_fft * (2.5 * math.log2(n_fft) + 1.0))


def _get_frame_sizes(shapes: Mapping[str, Any]) -> dict[str, int]:
    return {"n_fft": shapes["window"][0], "hop_length": shapes["window"][0] // 4}


_SIGNAL_INPUTS = make_sizes(
    lambda n, t, f: _make_windowed((n, t), "float", f), (1, 4096, 256), (8, 65536, 512), (16, 480000, 1024)
)
_SPECTRUM_INPUTS = make_sizes(
    lambda n, frames, f: _make_windowed((n, f // 2 + 1, frames), "complex", f),
    (1, 64, 256),
    (8, 512, 512),
    (16, 1875, 1024),
)

OPERATORS = (
    *(_define_transform(name, *ROW_SCALES) for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")),
    _define_transform("fft", *ROW_SCALES, variant="real"),
    _define_transform("fft", (8, 251), (128, 4093), (512, 16381), variant="prime"),
    _define_transform("fft", (128, 16), (32768, 16), (1 << 19, 16), variant="short"),
    _define_transform("fft", (2048,), (1 << 19,), (1 << 22,), variant="long"),
    _define_transform("rfft", (4096,), (1 << 20,), (1 << 23,), variant="long"),
    *(_define_transform(name, *IMAGE_SCALES) for name in ("fft2", "ifft2", "rfft2", "irfft2", "hfft2", "ihfft2")),
    *(_define_transform(name, *VOLUME_SCALES) for name in ("fftn", "ifftn", "rfftn", "irfftn", "hfftn", "ihfftn")),
    _define_shift("fftshift"),
    _define_shift("ifftshift"),
    _define_frequencies("fftfreq"),
    _define_frequencies("rfftfreq"),
    _define_fft(
        "stft",
        "torch.stft(data, n_fft, hop_length, window=window, return_complex=True)",
        "ref.stft(data, window, n_fft=n_fft, hop_length=hop_length)",
        _SIGNAL_INPUTS,
        attributes=_get_frame_sizes,
        flops=_count_frame_flops,
    ),
    _define_fft(
        "istft",
        "torch.istft(data, n_fft, hop_length, window=window)",
        "ref.istft(data, window, n_fft=n_fft, hop_length=hop_length)",
        _SPECTRUM_INPUTS,
        attributes=_get_frame_sizes,
        flops=_count_frame_flops,
    ),
)
