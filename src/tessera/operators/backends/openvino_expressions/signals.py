"""How OpenVINO writes Fourier transforms, sums of products by indices, and the sampling of images.

Complex numbers are pairs in a last dim of their own, which does not count among the axes of a transform.
"""

from __future__ import annotations

from collections.abc import Mapping

FFT = {
    "fft_fft": "complex_pairs(op.dft(data, [-1]))",
    "fft_fft2": "complex_pairs(op.dft(data, [-2, -1]))",
    "fft_fft_long": "complex_pairs(op.dft(data, [-1]))",
    "fft_fft_short": "complex_pairs(op.dft(data, [-1]))",
    "fft_fftn": "complex_pairs(op.dft(data, [-3, -2, -1]))",
    "fft_ifft": "complex_pairs(op.idft(data, [-1]))",
    "fft_ifft2": "complex_pairs(op.idft(data, [-2, -1]))",
    "fft_ifftn": "complex_pairs(op.idft(data, [-3, -2, -1]))",
    "fft_irfft": "op.irdft(data, [-1])",
    "fft_irfft2": "op.irdft(data, [-2, -1])",
    "fft_irfftn": "op.irdft(data, [-3, -2, -1])",
    "fft_rfft": "complex_pairs(op.rdft(data, [-1]))",
    "fft_rfft2": "complex_pairs(op.rdft(data, [-2, -1]))",
    "fft_rfft_long": "complex_pairs(op.rdft(data, [-1]))",
    "fft_rfftn": "complex_pairs(op.rdft(data, [-3, -2, -1]))",
    "istft": "op.istft(data, window, n_fft, hop_length, True, False)",
    "stft": (
        "complex_pairs(op.stft(op.pad(data, [0, n_fft // 2], [0, n_fft // 2], 'reflect'),"
        " window, n_fft, hop_length, True))"
    ),
}

SUMS = {
    "cosine_similarity": (
        "op.divide(op.reduce_sum(op.multiply(lhs, rhs), [-1], False),"
        " op.multiply(op.reduce_l2(lhs, [-1], False), op.reduce_l2(rhs, [-1], False)))"
    ),
    "einsum_attention": "op.einsum([lhs, rhs], equation)",
    "einsum_batched": "op.einsum([lhs, rhs], equation)",
    "einsum_diagonal": "op.einsum([data], equation)",
    "einsum_hadamard": "op.einsum([lhs, rhs], equation)",
    "einsum_matmul": "op.einsum([lhs, rhs], equation)",
    "einsum_outer": "op.einsum([lhs, rhs], equation)",
    "einsum_rows_dot": "op.einsum([lhs, rhs], equation)",
    "einsum_sum": "op.einsum([data], equation)",
    "einsum_transpose": "op.einsum([data], equation)",
    "normalize": "op.normalize_l2(data, [dim], 1e-12, 'max')",
    "one_hot": "op.one_hot(index, np.int64(num_classes), np.int64(1), np.int64(0), -1)",
    "pairwise_distance": "op.reduce_l2(op.add(op.subtract(lhs, rhs), real(eps)), [-1], False)",
    "trace": "op.einsum([data], 'ii->')",
}


def _resize(mode: str, coordinates: str = "half_pixel", dims: int = 2, more: str = "") -> str:
    axes = list(range(2, 2 + dims))
    return (
        f"op.interpolate(data, list(size), '{mode}', 'sizes', coordinate_transformation_mode='{coordinates}',"
        f" axes={axes}{more})"
    )


SAMPLE = "op.grid_sample(data, grid, {'align_corners': False, 'mode': mode, 'padding_mode': padding_mode})"
IMAGES = {
    "grid_sample": SAMPLE,
    "grid_sample_border": SAMPLE,
    "grid_sample_nearest": SAMPLE,
    "interpolate_bicubic": _resize("cubic"),
    "interpolate_bilinear": _resize("linear_onnx"),
    "interpolate_bilinear_antialias": _resize("bilinear_pillow"),
    "interpolate_bilinear_corners": _resize("linear_onnx", "align_corners"),
    "interpolate_linear": _resize("linear_onnx", dims=1),
    "interpolate_nearest": _resize("nearest", "asymmetric", more=", nearest_mode='floor'"),
    "interpolate_nearest_exact": _resize("nearest", more=", nearest_mode='round_prefer_ceil'"),
    "interpolate_trilinear": _resize("linear_onnx", dims=3),
}

SIGNALS: Mapping[str, str] = {**FFT, **SUMS, **IMAGES}
