"""JAX expressions of operators that copy, create, draw at random or convert values. No result is a view.

`rng` is a JAX random key. Every call uses the same key; the time of a draw does not depend on the key.
"""

from __future__ import annotations

# `index` along dim 1 (COLUMN_INDEX) or dim 0 (ROW_INDEX) of a matrix, as an index over both dims
COLUMN_INDEX = "jnp.arange(index.shape[0])[:, None], index"
ROW_INDEX = "index, jnp.arange(index.shape[1])"

INDEXING_EXPRESSIONS = {
    "nonzero_static": "jnp.argwhere(data, size=data.size, fill_value=-1)",
    # writing into a copy
    "scatter": "jnp.put_along_axis(data, index, source, dim, inplace=False)",
    "scatter_value": "jnp.put_along_axis(data, index, value, dim, inplace=False)",
    "index_copy": "data.at[index].set(source)",
    "index_fill": "data.at[index].set(value)",
    "index_put": "data.at[index].set(source)",
    "put": "jnp.put(data, index, source, inplace=False)",
    "masked_scatter": "jnp.place(data, mask, source, inplace=False)",
    "slice_scatter": "data.at[start:end].set(source)",
    "select_scatter": "data.at[:, index].set(source)",
    "diagonal_scatter": "jnp.fill_diagonal(data, source, inplace=False)",
    # adding and reducing into a copy
    "scatter_add": f"data.at[{COLUMN_INDEX}].add(source)",
    "scatter_add_rows": f"data.at[{ROW_INDEX}].add(source)",
    "scatter_reduce_amax": f"data.at[{COLUMN_INDEX}].max(source)",
    "scatter_reduce_mean": f"data.at[{COLUMN_INDEX}].add(source) / jnp.ones_like(data).at[{COLUMN_INDEX}].add(1)",
    "index_add": "data.at[index].add(source)",
    "index_put_accumulate": "data.at[index].add(source)",
    "index_reduce_amax": "data.at[index].max(source)",
}


JOINING_EXPRESSIONS = {
    "cartesian_prod": "jnp.stack(jnp.meshgrid(first, second, indexing='ij'), -1).reshape(-1, 2)",
    "split": "jnp.split(data, [*range(split_size, len(data), split_size)])",
    "split_sizes": "jnp.split(data, [sum(sections[:k]) for k in range(1, len(sections))])",
    "chunk": "jnp.split(data, [*range(-(-len(data) // chunks), len(data), -(-len(data) // chunks))])",
    "unbind": "jnp.unstack(data, axis=dim)",
    "meshgrid": "jnp.meshgrid(first, second, indexing='ij')",
}
SHAPING_EXPRESSIONS = {
    **{name: f"jnp.{name}(data)" for name in ("fliplr", "flipud")},
    "view_as_real": "jnp.stack((data.real, data.imag), -1)",
    "view_as_complex": "lax.complex(data[..., 0], data[..., 1])",
    "transpose_contiguous": "data.T",
    "permute_contiguous": "jnp.transpose(data, (0, 2, 3, 1))",
    "swap_heads": "jnp.swapaxes(data, 1, 2)",
    "flip": "jnp.flip(data, dims)",
    "rot90": "jnp.rot90(data, k)",
    "narrow_copy": "data[:, start : start + length]",
    "unfold": "lax.conv_general_dilated_patches(data, (kernel_size,) * 2, (stride,) * 2, [(padding, padding)] * 2)"
    ".reshape(data.shape[0], data.shape[1] * kernel_size**2, -1)",
    "channel_shuffle": "data.reshape(len(data), groups, -1, *data.shape[2:]).swapaxes(1, 2).reshape(data.shape)",
    "diag_embed": "jax.vmap(jnp.diag)(data)",
}
VIEW_COPY_EXPRESSIONS = {
    "view_copy": "jnp.reshape(data, (-1,))",
    "t_copy": "data.T",
    "transpose_copy": "jnp.swapaxes(data, 0, 1)",
    "permute_copy": "jnp.transpose(data, (2, 0, 1))",
    "squeeze_copy": "jnp.squeeze(data)",
    "unsqueeze_copy": "jnp.expand_dims(data, 1)",
    "expand_copy": "jnp.broadcast_to(data, size)",
    "select_copy": "data[:, index]",
    "slice_copy": "data[:, 1::2]",
    "diagonal_copy": "jnp.diagonal(data)",
    "split_copy": JOINING_EXPRESSIONS["split"],
    "unbind_copy": "jnp.unstack(data, axis=-1)",
}

CREATION_EXPRESSIONS = {
    "complex": "lax.complex(real, imaginary)",
    "polar": "lax.complex(magnitude * jnp.cos(angle), magnitude * jnp.sin(angle))",
}

DROPOUT_TEMPLATE = "jnp.where(jax.random.bernoulli(rng, 1 - p, {}), data / (1 - p), 0)"
SAMPLE_EACH_ROW = (
    "jax.vmap(lambda key, p: jax.random.choice(key, len(p), (num_samples,), {}, p))"
    "(jax.random.split(rng, len(data)), data)"
)

RANDOM_EXPRESSIONS = {
    "rand": "jax.random.uniform(rng, size, like.dtype)",
    "randn": "jax.random.normal(rng, size, like.dtype)",
    "randint": "jax.random.randint(rng, size, 0, 100)",
    "randperm": "jax.random.permutation(rng, *size)",
    "rand_like": "jax.random.uniform(rng, like.shape, like.dtype)",
    "randn_like": "jax.random.normal(rng, like.shape, like.dtype)",
    "randint_like": "jax.random.randint(rng, like.shape, 0, 100).astype(like.dtype)",
    "normal": "mean + std * jax.random.normal(rng, mean.shape, mean.dtype)",
    "bernoulli": "jax.random.bernoulli(rng, data).astype(data.dtype)",
    "poisson": "jax.random.poisson(rng, data).astype(data.dtype)",
    "binomial": "jax.random.binomial(rng, count, prob)",
    "multinomial": SAMPLE_EACH_ROW.format(True),
    "multinomial_once": SAMPLE_EACH_ROW.format(False),
    "dropout": DROPOUT_TEMPLATE.format("data.shape"),
    "dropout1d": DROPOUT_TEMPLATE.format("(*data.shape[:2], 1)"),
    "dropout2d": DROPOUT_TEMPLATE.format("(*data.shape[:2], 1, 1)"),
    "dropout3d": DROPOUT_TEMPLATE.format("(*data.shape[:2], 1, 1, 1)"),
}

QUANTISE_TEMPLATE = "(jnp.clip(jnp.round(data / {0}) + {1}, -128, 127) - {1}) * {0}"
CONVERSION_EXPRESSIONS = {
    **{f"to_{name}": f"data.astype(jnp.{name})" for name in ("bfloat16", "float16", "complex64")},
    "conj": "jnp.conj(data)",
    "int64_to_bool": "data.astype(bool)",
    "from_channels_last": "jnp.moveaxis(data, -1, 1)",
    "contiguous": "data[:, ::2]",
    "fake_quantize_per_tensor_affine": QUANTISE_TEMPLATE.format("scale", "zero_point"),
    "fake_quantize_per_channel_affine": QUANTISE_TEMPLATE.format(
        "scales[:, None]", "zero_points[:, None].astype(data.dtype)"
    ),
}

EXPRESSIONS = (
    INDEXING_EXPRESSIONS
    | JOINING_EXPRESSIONS
    | SHAPING_EXPRESSIONS
    | VIEW_COPY_EXPRESSIONS
    | CREATION_EXPRESSIONS
    | RANDOM_EXPRESSIONS
    | CONVERSION_EXPRESSIONS
)
