"""Fourier transforms, embeddings, images, distances, conversions in JAX."""

from __future__ import annotations

FFT = {
    **{
        f"fft_{name}": f"jnp.fft.{name}(data)"
        for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fft2", "ifft2", "rfft2", "irfft2")
    },
    **{
        f"fft_{name}": f"jnp.fft.{name}(data)" for name in ("fftn", "ifftn", "rfftn", "irfftn", "fftshift", "ifftshift")
    },
    **{f"fft_fft_{variant}": "jnp.fft.fft(data)" for variant in ("real", "prime", "short", "long")},
    "fft_rfft_long": "jnp.fft.rfft(data)",
    "fft_fftfreq": "jnp.fft.fftfreq(n, spacing, dtype=data.dtype)",
    "fft_rfftfreq": "jnp.fft.rfftfreq(n, spacing, dtype=data.dtype)",
}
LOOKUP = "jnp.take(weight, index, 0)"
# the bag of each place in a list of bags that lie one after the other
BAGS = "jnp.searchsorted(offsets, jnp.arange(len(index)), side='right') - 1"
SUMS = f"jax.ops.segment_sum({LOOKUP}, {BAGS}, len(offsets), indices_are_sorted=True)"
EMBEDDING = {
    "embedding": LOOKUP,
    "embedding_frequent": LOOKUP,
    "embedding_bag": f"jnp.sum({LOOKUP}, 1)",
    "embedding_bag_frequent": f"jnp.sum({LOOKUP}, 1)",
    "embedding_bag_mean": f"jnp.mean({LOOKUP}, 1)",
    "embedding_bag_max": f"jnp.max({LOOKUP}, 1)",
    "embedding_bag_offsets": SUMS,
    "embedding_bag_weighted": f"jnp.einsum('bw,bwf->bf', scale, {LOOKUP})",
}
RESIZED = "jax.image.resize(data, (*data.shape[:2], *size), '{}', antialias={})"
PRODUCTS = ("matmul", "batched", "attention", "outer", "hadamard", "rows_dot")
MISC = {
    **{f"einsum_{name}": "jnp.einsum(equation, lhs, rhs)" for name in PRODUCTS},
    **{f"einsum_{name}": "jnp.einsum(equation, data)" for name in ("sum", "transpose", "diagonal")},
    "interpolate_nearest_exact": RESIZED.format("nearest", False),
    "interpolate_linear": RESIZED.format("linear", False),
    "interpolate_bilinear": RESIZED.format("bilinear", False),
    "interpolate_trilinear": RESIZED.format("trilinear", False),
    "interpolate_bilinear_antialias": RESIZED.format("bilinear", True),
    "cdist": "jnp.linalg.norm(lhs[:, None] - rhs, axis=-1)",
    "cdist_manhattan": "jnp.sum(jnp.abs(lhs[:, None] - rhs), -1)",
    "cosine_similarity": "jnp.sum(lhs * rhs, -1) / (jnp.linalg.norm(lhs, axis=-1) * jnp.linalg.norm(rhs, axis=-1))",
    "pairwise_distance": "jnp.linalg.norm(lhs - rhs + eps, axis=-1)",
    "normalize": "data / jnp.linalg.norm(data, axis=dim, keepdims=True)",
    "trace": "jnp.trace(data)",
    "gradient": "jnp.gradient(data)",
    "one_hot": "jax.nn.one_hot(index, num_classes, dtype=int)",
    "segment_reduce": "jax.ops.segment_sum(data, jnp.repeat(jnp.arange(len(lengths)), lengths,"
    " total_repeat_length=len(data)), len(lengths), indices_are_sorted=True)",
}
# without 64-bit inputs JAX runs in its own mode of 32 bits, which has no conversion to 64
ENDS = ("bfloat16", "float16", "complex64", "int32", "int8", "uint8", "bool")
CASTS = ("float64_to_float32", "float16_to_float32", "int32_to_float32", "int8_to_float32", "uint8_to_float32")
QUANTISED = "(jnp.clip(jnp.round(data / {0}) + {1}, -128, 127) - {1}) * {0}"
CONVERSION = {
    **{f"to_{name}": f"data.astype(jnp.{name})" for name in ENDS},
    **dict.fromkeys((*CASTS, "int64_to_float32", "bool_to_float32"), "data.astype(jnp.float32)"),
    **{name: f"jnp.{name}(data)" for name in ("real", "imag", "conj", "angle")},
    "int64_to_int32": "data.astype(jnp.int32)",
    "int64_to_bool": "data.astype(bool)",
    "conj_physical": "jnp.conj(data)",
    "from_channels_last": "jnp.moveaxis(data, -1, 1)",
    "contiguous": "data[:, ::2]",
    "fake_quantize_per_tensor_affine": QUANTISED.format("scale", "zero_point"),
    "fake_quantize_per_channel_affine": QUANTISED.format("scales[:, None]", "zero_points[:, None].astype(data.dtype)"),
}

EXPRESSIONS = FFT | EMBEDDING | MISC | CONVERSION
