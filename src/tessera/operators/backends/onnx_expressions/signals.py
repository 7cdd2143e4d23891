"""How ONNX writes Fourier transforms, sums of products by indices, and the sampling of images.

Complex numbers are pairs in a last dim of their own; real ones enter a transform with a last dim of one.
"""

from __future__ import annotations

from collections.abc import Mapping

REAL = "op.Unsqueeze(data, [-1])"


def _transform(data: str, *axes: int, more: str = "") -> str:
    """One dim after the other, the last one first."""
    for axis in axes:
        data = f"op.DFT({data}, None, {axis}{more})"
    return f"complex_pairs({data})"


FFT = {
    "fft_fft": _transform("data", -2),
    "fft_fft2": _transform("data", -2, -3),
    "fft_fft_real": _transform(REAL, -2),
    "fft_fft_short": _transform("data", -2),
    "fft_fftn": _transform("data", -2, -3, -4),
    "fft_ifft": _transform("data", -2, more=", inverse=1"),
    "fft_ifft2": _transform("data", -2, -3, more=", inverse=1"),
    "fft_ifftn": _transform("data", -2, -3, -4, more=", inverse=1"),
    "fft_irfft": "op.Squeeze(op.DFT(data, None, -2, inverse=1, onesided=1), [-1])",
    "fft_rfft": _transform(REAL, -2, more=", onesided=1"),
    "fft_rfft2": _transform(f"op.DFT({REAL}, None, -2, onesided=1)", -3),
    "fft_rfftn": _transform(f"op.DFT({REAL}, None, -2, onesided=1)", -3, -4),
    "stft": (
        "complex_pairs(op.Transpose(op.STFT(op.Unsqueeze(op.Pad(data, [0, n_fft // 2] * 2, mode='reflect'), [-1]),"
        " hop_length, window, n_fft, onesided=1), perm=[0, 2, 1, 3]))"
    ),
}

ROWS = "op.ReduceSum(op.Mul({0}, {1}), [-1], keepdims=0)"
SUMS = {
    "cosine_similarity": (
        f"op.Div({ROWS.format('lhs', 'rhs')},"
        " op.Mul(op.ReduceL2(lhs, [-1], keepdims=0), op.ReduceL2(rhs, [-1], keepdims=0)))"
    ),
    "einsum_attention": "op.Einsum(lhs, rhs, equation=equation)",
    "einsum_batched": "op.Einsum(lhs, rhs, equation=equation)",
    "einsum_diagonal": "op.Einsum(data, equation=equation)",
    "einsum_hadamard": "op.Einsum(lhs, rhs, equation=equation)",
    "einsum_matmul": "op.Einsum(lhs, rhs, equation=equation)",
    "einsum_outer": "op.Einsum(lhs, rhs, equation=equation)",
    "einsum_rows_dot": "op.Einsum(lhs, rhs, equation=equation)",
    "einsum_sum": "op.Einsum(data, equation=equation)",
    "einsum_transpose": "op.Einsum(data, equation=equation)",
    "normalize": "op.LpNormalization(data, axis=dim)",
    "one_hot": "op.OneHot(index, num_classes, [0, 1])",
    "pairwise_distance": "op.ReduceL2(op.Add(op.Sub(lhs, rhs), eps), [-1], keepdims=0)",
    "trace": "op.Einsum(data, equation='ii->')",
}


def _resize(mode: str, coordinates: str = "half_pixel", more: str = "") -> str:
    return (
        "op.Resize(data, None, None, [*data.shape[:2], *size],"
        f" mode='{mode}', coordinate_transformation_mode='{coordinates}'{more})"
    )


IMAGES = {
    "affine_grid": "op.AffineGrid(theta, size)",
    "grid_sample": "op.GridSample(data, grid, mode='linear', padding_mode=padding_mode)",
    "grid_sample_3d": "op.GridSample(data, grid, mode='linear', padding_mode=padding_mode)",
    "grid_sample_border": "op.GridSample(data, grid, mode='linear', padding_mode=padding_mode)",
    "grid_sample_nearest": "op.GridSample(data, grid, mode=mode, padding_mode=padding_mode)",
    "interpolate_bicubic": _resize("cubic"),
    "interpolate_bilinear": _resize("linear"),
    "interpolate_bilinear_antialias": _resize("linear", more=", antialias=1, exclude_outside=1"),
    "interpolate_bilinear_corners": _resize("linear", "align_corners"),
    "interpolate_linear": _resize("linear"),
    "interpolate_nearest": _resize("nearest", "asymmetric", ", nearest_mode='floor'"),
    "interpolate_nearest_exact": _resize("nearest", more=", nearest_mode='round_prefer_ceil'"),
    "interpolate_trilinear": _resize("linear"),
}

SIGNALS: Mapping[str, str] = {**FFT, **SUMS, **IMAGES}
