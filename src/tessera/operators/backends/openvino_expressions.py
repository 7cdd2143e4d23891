"""OpenVINO expressions (Python source of each operator): ONNX graphs that OpenVINO converts, or its own nodes."""

from __future__ import annotations

from collections.abc import Mapping

from tessera.operators.backends.onnx_expressions import list_onnx_expressions
from tessera.operators.backends.onnx_expressions.recurrent import RECURRENT_CELLS, write_step
from tessera.operators.backends.onnx_expressions.reductions import write_variance

# ONNX operators to exclude: OpenVINO computes results that need no input values at compile time (CONSTANT_RESULTS),
# computes 64-bit values with fewer bits (REDUCED_PRECISION), or cannot convert the graph (NOT_CONVERTED)
CONSTANT_RESULTS = (
    *("arange", "arange_float", "blackman_window", "clone", "eye", "full", "full_like", "hann_window"),
    *("new_full", "new_zeros", "ones", "ones_like", "zeros", "zeros_like"),
)
REDUCED_PRECISION = ("float64_to_float32", "float_power", "float_power_scalar", "sort_int64", "to_float64")
NOT_CONVERTED = (
    "bernoulli",
    "cumprod",
    "dropout",
    "grid_sample_3d",
    "linalg_det",
    "linalg_det_batched",
    "pad_circular",
)

# ONNX graphs for OpenVINO only: ONNX Runtime has no such graph, or a graph that OpenVINO cannot convert
CONVERTED_EXPRESSIONS = {
    **{f"{name}_cell": write_step(cell) for name, cell in RECURRENT_CELLS.items()},
    "std": f"op.Sqrt({write_variance('[0, 1]', 'np.prod(data.shape)')})",
    "var": write_variance("[0, 1]", "np.prod(data.shape)"),
}

_TOP1_TEMPLATE = "[op.squeeze(out, [dim]) for out in op.topk(data, 1, dim, '{0}', 'none', 'i64').outputs()]"
_FLAT_ARG_TEMPLATE = "op.squeeze(op.topk(op.reshape(data, [-1], False), 1, 0, '{0}', 'none', 'i64').output(1), [0])"
_STABLE_SORT_CALL = "op.topk(data, data.shape[dim], dim, 'min', 'value', 'i64', True)"

# operators built from OpenVINO nodes: ONNX lacks the operator, or its converted graph is slower or less accurate
NATIVE_EXPRESSIONS: Mapping[str, str] = {
    "argmax": _FLAT_ARG_TEMPLATE.format("max"),
    "argmax_rows": _TOP1_TEMPLATE.format("max") + "[1]",
    "argmin": _FLAT_ARG_TEMPLATE.format("min"),
    "argmin_rows": _TOP1_TEMPLATE.format("min") + "[1]",
    "argsort_stable": f"{_STABLE_SORT_CALL}.output(1)",
    "bitwise_left_shift": "op.bitwise_left_shift(lhs, rhs)",
    "bitwise_left_shift_scalar": "op.bitwise_left_shift(data, np.int32(other))",
    "bitwise_right_shift": "op.bitwise_right_shift(lhs, rhs)",
    "bitwise_right_shift_scalar": "op.bitwise_right_shift(data, np.int32(other))",
    "bucketize": "op.bucketize(data, boundaries, 'i64')",
    "embedding_bag": "op.embedding_bag_packed(weight, index, None, 'sum')",
    "embedding_bag_frequent": "op.embedding_bag_packed(weight, index, None, 'sum')",
    "embedding_bag_mean": "op.embedding_bag_packed(weight, index, None, 'mean')",
    "embedding_bag_weighted": "op.embedding_bag_packed(weight, index, scale, 'sum')",
    "embedding_bag_offsets": "op.embedding_bag_offsets(weight, index, offsets, reduction='sum')",
    "embedding_bag_offsets_mean": "op.embedding_bag_offsets(weight, index, offsets, reduction='mean')",
    "erfinv": "op.erfinv(data)",
    "group_norm": "op.group_normalization(data, weight, bias, num_groups, eps)",
    "hardsigmoid": "op.hsigmoid(data)",
    "interpolate_bilinear_antialias": (
        "op.interpolate(data, list(size), 'bilinear_pillow', 'sizes', coordinate_transformation_mode='half_pixel',"
        " axes=[2, 3])"
    ),
    "isfinite": "op.is_finite(data)",
    "linalg_inv": "op.inverse(data, False)",
    "linalg_inv_batched": "op.inverse(data, False)",
    "max_cols": _TOP1_TEMPLATE.format("max"),
    "max_rows": _TOP1_TEMPLATE.format("max"),
    "min_rows": _TOP1_TEMPLATE.format("min"),
    "multinomial_once": "op.multinomial(data, [num_samples], 'i64', False, False)",
    "normalize": "op.normalize_l2(data, [dim], 1e-12, 'max')",
    "pixel_unshuffle": "op.space_to_depth(data, 'depth_first', factor)",
    "randint": "op.random_uniform(list(size), np.int64(0), np.int64(100), 'i64')",
    "randint_like": "op.random_uniform(list(like.shape), np.int64(0), np.int64(100), 'i64')",
    "roll": "op.roll(data, list(shifts), list(dims))",
    "scaled_dot_product_attention_bias": "op.scaled_dot_product_attention(query, key, value, mask)",
    "scaled_dot_product_attention_causal": "op.scaled_dot_product_attention(query, key, value, causal=True)",
    "scaled_dot_product_attention_mask": "op.scaled_dot_product_attention(query, key, value, mask)",
    "scatter_reduce_mean": "op.scatter_elements_update(data, index, source, dim, 'mean')",
    "searchsorted": "op.bucketize(data, sorted_sequence, 'i64')",
    "searchsorted_ordered": "op.bucketize(data, sorted_sequence, 'i64')",
    "slice_scatter": "op.slice_scatter(data, source, [start], [end], [1], [0])",
    "sort_stable": _STABLE_SORT_CALL,
    **{f"adaptive_avg_pool{dims}d": f"op.adaptive_avg_pool(data, [output_size] * {dims})" for dims in (1, 2, 3)},
    **{
        f"adaptive_max_pool{dims}d": f"op.adaptive_max_pool(data, [output_size] * {dims}, 'i32').output(0)"
        for dims in (1, 2, 3)
    },
    # complex numbers are pairs in an additional last dim, which is not counted in the axes of a transform
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


def list_openvino_expressions() -> Mapping[str, str]:
    """Return the OpenVINO expressions of all operators that OpenVINO supports, by operator name."""
    excluded = {*CONSTANT_RESULTS, *REDUCED_PRECISION, *NOT_CONVERTED}
    converted = {name: expression for name, expression in list_onnx_expressions().items() if name not in excluded}
    return {**converted, **CONVERTED_EXPRESSIONS, **NATIVE_EXPRESSIONS}
