"""Joining, splitting, padding and changes of shape in JAX: none is a view."""

from __future__ import annotations

LIST = "(first, second, third)"


def pad(dims: int, mode: str) -> str:
    """Padding by `padding` on both sides of each of the last dims."""
    return f"jnp.pad(data, [(0, 0)] * 2 + [(padding, padding)] * {dims}, '{mode}')"


JOINING = {
    "cat": f"jnp.concatenate({LIST}, dim)",
    "cat_cols": f"jnp.concatenate({LIST}, dim)",
    "cat_channels": "jnp.concatenate((first, second), dim)",
    "cat_vectors": f"jnp.concatenate({LIST})",
    "stack": f"jnp.stack({LIST}, dim)",
    "stack_last": f"jnp.stack({LIST}, dim)",
    "hstack": f"jnp.hstack({LIST})",
    "vstack": f"jnp.vstack({LIST})",
    "dstack": f"jnp.dstack({LIST})",
    "column_stack": f"jnp.column_stack({LIST})",
    "block_diag": f"jax.scipy.linalg.block_diag(*{LIST})",
    "cartesian_prod": "jnp.stack(jnp.meshgrid(first, second, indexing='ij'), -1).reshape(-1, 2)",
    "split": "jnp.split(data, [*range(split_size, len(data), split_size)])",
    "split_sizes": "jnp.split(data, [sum(sections[:k]) for k in range(1, len(sections))])",
    "chunk": "jnp.split(data, [*range(-(-len(data) // chunks), len(data), -(-len(data) // chunks))])",
    "tensor_split": "jnp.array_split(data, sections)",
    "hsplit": "jnp.hsplit(data, sections)",
    "vsplit": "jnp.vsplit(data, sections)",
    "dsplit": "jnp.dsplit(data, sections)",
    "unbind": "jnp.unstack(data, axis=dim)",
    "meshgrid": "jnp.meshgrid(first, second, indexing='ij')",
    "broadcast_tensors": f"jnp.broadcast_arrays(*{LIST})",
    "pad_constant": pad(2, "constant"),
    "pad_reflect": pad(2, "reflect"),
    "pad_replicate": pad(2, "edge"),
    "pad_circular": pad(2, "wrap"),
    "pad_constant_1d": pad(1, "constant"),
    "pad_reflect_1d": pad(1, "reflect"),
    "pad_replicate_3d": pad(3, "edge"),
    "pad_reflect_3d": pad(3, "reflect"),
}
SHAPING = {
    **{
        name: f"jnp.{name}(data)"
        for name in ("ravel", "squeeze", "atleast_1d", "atleast_2d", "atleast_3d", "fliplr", "flipud", "tril", "triu")
    },
    **{name: f"jnp.{name}(data)" for name in ("diag", "diagflat")},
    "reshape": "jnp.reshape(data, (-1,))",
    "view": "jnp.reshape(data, (-1,))",
    "flatten": "data.reshape(data.shape[0], -1)",
    "unflatten": "data.reshape(*sizes, -1)",
    "transpose": "jnp.swapaxes(data, 0, 1)",
    "swapaxes": "jnp.swapaxes(data, 0, 1)",
    "t": "data.T",
    "permute": "jnp.transpose(data, dims)",
    "movedim": "jnp.moveaxis(data, 0, -1)",
    "adjoint": "jnp.conj(data.T)",
    "squeeze_dim": "jnp.squeeze(data, dim)",
    "unsqueeze": "jnp.expand_dims(data, dim)",
    "expand": "jnp.broadcast_to(data, size)",
    "broadcast_to": "jnp.broadcast_to(data, size)",
    "view_as_real": "jnp.stack((data.real, data.imag), -1)",
    "view_as_complex": "lax.complex(data[..., 0], data[..., 1])",
    "transpose_contiguous": "data.T",
    "permute_contiguous": "jnp.transpose(data, (0, 2, 3, 1))",
    "swap_heads": "jnp.swapaxes(data, 1, 2)",
    "flip": "jnp.flip(data, dims)",
    "rot90": "jnp.rot90(data, k)",
    "roll": "jnp.roll(data, shifts, dims)",
    "roll_flat": "jnp.roll(data, shifts)",
    "repeat": "jnp.tile(data, repeats)",
    "tile": "jnp.tile(data, dims)",
    "repeat_interleave": "jnp.repeat(data, repeats, axis=1)",
    "narrow_copy": "data[:, start : start + length]",
    "unfold": "lax.conv_general_dilated_patches(data, (kernel_size,) * 2, (stride,) * 2, [(padding, padding)] * 2)"
    ".reshape(data.shape[0], data.shape[1] * kernel_size**2, -1)",
    "channel_shuffle": "data.reshape(len(data), groups, -1, *data.shape[2:]).swapaxes(1, 2).reshape(data.shape)",
    "diag_matrix": "jnp.diag(data)",
    "diag_embed": "jax.vmap(jnp.diag)(data)",
}
COPIES = {
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
    "split_copy": JOINING["split"],
    "unbind_copy": "jnp.unstack(data, axis=-1)",
}

EXPRESSIONS = JOINING | SHAPING | COPIES
