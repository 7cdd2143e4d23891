"""ONNX expressions of Fourier transforms, einsum and similar sums, and resampling of images.

Complex numbers are (real, imaginary) pairs in an additional last dim; real inputs of a transform have a last dim of 1.
"""

from __future__ import annotations

from collections.abc import Mapping

REAL_SIGNAL = "op.Unsqueeze(data, [-1])"


def _write_transform(data: str, *axes: int, attributes: str = "") -> str:
    """Return the source of a multi-dimensional transform: one-dimensional transforms from the last dim to the first."""
    for axis in axes:
        data = f"op.DFT({data}, None, {axis}{attributes})"
    return f"complex_pairs({data})"


FFT_EXPRESSIONS = {
    "fft_fft": _write_transform("data", -2),
    "fft_fft2": _write_transform("data", -2, -3),
    "fft_fft_real": _write_transform(REAL_SIGNAL, -2),
    "fft_fftn": _write_transform("data", -2, -3, -4),
    "fft_ifft": _write_transform("data", -2, attributes=", inverse=1"),
    "fft_ifft2": _write_transform("data", -2, -3, attributes=", inverse=1"),
    "fft_ifftn": _write_transform("data", -2, -3, -4, attributes=", inverse=1"),
    "fft_irfft": "op.Squeeze(op.DFT(data, None, -2, inverse=1, onesided=1), [-1])",
    "fft_rfft": _write_transform(REAL_SIGNAL, -2, attributes=", onesided=1"),
    "fft_rfft2": _write_transform(f"op.DFT({REAL_SIGNAL}, None, -2, onesided=1)", -3),
    "fft_rfftn": _write_transform(f"op.DFT({REAL_SIGNAL}, None, -2, onesided=1)", -3, -4),
    "stft": (
        "complex_pairs(op.Transpose(op.STFT(op.Unsqueeze(op.Pad(data, [0, n_fft // 2] * 2, mode='reflect'), [-1]),"
        " hop_length, window, n_fft, onesided=1), perm=[0, 2, 1, 3]))"
    ),
}

ROW_DOT_TEMPLATE = "op.ReduceSum(op.Mul({0}, {1}), [-1], keepdims=0)"
SUM_EXPRESSIONS = {
    "cosine_similarity": (
        f"op.Div({ROW_DOT_TEMPLATE.format('lhs', 'rhs')},"
        " op.Mul(op.ReduceL2(lhs, [-1], keepdims=0), op.ReduceL2(rhs, [-1], keepdims=0)))"
    ),
    "einsum_matmul": "op.Einsum(lhs, rhs, equation=equation)",
    "einsum_sum": "op.Einsum(data, equation=equation)",
    "normalize": "op.LpNormalization(data, axis=dim)",
    "one_hot": "op.OneHot(index, num_classes, [0, 1])",
    "pairwise_distance": "op.ReduceL2(op.Add(op.Sub(lhs, rhs), eps), [-1], keepdims=0)",
    "trace": "op.Einsum(data, equation='ii->')",
}


def _write_resize(mode: str, coordinates: str = "half_pixel", attributes: str = "") -> str:
    return (
        "op.Resize(data, None, None, [*data.shape[:2], *size],"
        f" mode='{mode}', coordinate_transformation_mode='{coordinates}'{attributes})"
    )


IMAGE_EXPRESSIONS = {
    "affine_grid": "op.AffineGrid(theta, size)",
    "grid_sample": "op.GridSample(data, grid, mode='linear', padding_mode=padding_mode)",
    "grid_sample_nearest": "op.GridSample(data, grid, mode=mode, padding_mode=padding_mode)",
    "interpolate_bicubic": _write_resize("cubic"),
    "interpolate_bilinear": _write_resize("linear"),
    "interpolate_bilinear_antialias": _write_resize("linear", attributes=", antialias=1, exclude_outside=1"),
    "interpolate_bilinear_corners": _write_resize("linear", "align_corners"),
    "interpolate_linear": _write_resize("linear"),
    "interpolate_nearest": _write_resize("nearest", "asymmetric", ", nearest_mode='floor'"),
    "interpolate_nearest_exact": _write_resize("nearest", attributes=", nearest_mode='round_prefer_ceil'"),
    "interpolate_trilinear": _write_resize("linear"),
}

SIGNAL_EXPRESSIONS: Mapping[str, str] = {**FFT_EXPRESSIONS, **SUM_EXPRESSIONS, **IMAGE_EXPRESSIONS}
