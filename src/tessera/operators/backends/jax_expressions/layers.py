"""Pooling, normalisation and attention in JAX. It has no adaptive pooling but the global one."""

from __future__ import annotations


def pool(what: str, dims: int, *, of: str = "data", padding: str = "0", dilation: str = "1") -> str:
    """A reduction by `max` or `add` over windows."""
    start = "-jnp.inf" if what == "max" else "0.0"
    window = f"(1, 1) + (kernel_size,) * {dims}, (1, 1) + (stride,) * {dims}"
    around = f"[(0, 0)] * 2 + [({padding}, {padding})] * {dims}"
    gaps = f", window_dilation=(1, 1) + ({dilation},) * {dims}" if dilation != "1" else ""
    return f"lax.reduce_window({of}, {start}, lax.{what}, {window}, {around}{gaps})"


POOLING = {
    **{f"max_pool{dims}d": pool("max", dims) for dims in (1, 2, 3)},
    **{f"avg_pool{dims}d": f"{pool('add', dims)} / kernel_size**{dims}" for dims in (1, 2, 3)},
    **{
        f"lp_pool{dims}d": f"{pool('add', dims, of='jnp.abs(data) ** norm_type')} ** (1 / norm_type)"
        for dims in (1, 2, 3)
    },
    "max_pool2d_stem": pool("max", 2, padding="padding"),
    "max_pool2d_dilated": pool("max", 2, padding="padding", dilation="dilation"),
    "avg_pool2d_3x3": f"{pool('add', 2, padding='padding')} / kernel_size**2",
    "avg_pool2d_without_padding": f"{pool('add', 2, padding='padding')}"
    f" / {pool('add', 2, of='jnp.ones_like(data)', padding='padding')}",
    "global_avg_pool2d": "jnp.mean(data, (2, 3), keepdims=True)",
    "global_max_pool2d": "jnp.max(data, (2, 3), keepdims=True)",
}


def standardised(axes: str, of: str = "data") -> str:
    return f"jax.nn.standardize({of}, {axes}, epsilon=eps)"


def affine(dims: int) -> str:
    """A scale and a shift for every channel, over so many dims of space."""
    space = "[:" + ", None" * dims + "]" if dims else ""
    return f" * weight{space} + bias{space}"


def batch_norm(dims: int) -> str:
    return standardised(str((0, *range(2, 2 + dims)))) + affine(dims)


def batch_norm_eval(dims: int) -> str:
    space = "[:" + ", None" * dims + "]"
    return f"(data - running_mean{space}) * lax.rsqrt(running_var{space} + eps)" + affine(dims)


NORMALISATION = {
    "batch_norm": batch_norm(2),
    "batch_norm_eval": batch_norm_eval(2),
    "batch_norm_1d": batch_norm(1),
    "batch_norm_1d_eval": batch_norm_eval(1),
    "batch_norm_3d": batch_norm(3),
    "batch_norm_3d_eval": batch_norm_eval(3),
    "batch_norm_rows": batch_norm(0),
    "layer_norm": standardised("-1") + affine(0),
    "layer_norm_no_affine": standardised("-1"),
    "layer_norm_images": standardised("(1, 2, 3)") + affine(0),
    "native_layer_norm": "(lambda mean, scale: ((data - mean) * scale * weight + bias, mean, scale))"
    "(jnp.mean(data, -1, keepdims=True), lax.rsqrt(jnp.var(data, -1, keepdims=True) + eps))",
    "rms_norm": "data * lax.rsqrt(jnp.mean(jnp.square(data), -1, keepdims=True) + eps) * weight",
    "group_norm": standardised("-1", "data.reshape(len(data), num_groups, -1)") + ".reshape(data.shape)" + affine(2),
    "instance_norm": standardised("(2, 3)") + affine(2),
    "instance_norm_1d": standardised("2") + affine(1),
    "local_response_norm": "data / (k + alpha / size * lax.reduce_window(jnp.square(data), 0.0, lax.add,"
    " (1, size, 1, 1), (1, 1, 1, 1), ((0, 0), (size // 2, (size - 1) // 2), (0, 0), (0, 0)))) ** beta",
    "weight_norm": "data * (magnitude / jnp.linalg.norm(data, axis=1, keepdims=True))",
}


def attention(more: str = "") -> str:
    """JAX's own, which has heads behind length."""
    turned = ", ".join(f"jnp.swapaxes({name}, 1, 2)" for name in ("query", "key", "value"))
    return f"jnp.swapaxes(jax.nn.dot_product_attention({turned}{more}), 1, 2)"


ATTENTION = {
    **{f"scaled_dot_product_attention{variant}": attention() for variant in ("", "_gqa", "_cross", "_decode")},
    "scaled_dot_product_attention_causal": attention(", is_causal=True"),
    "scaled_dot_product_attention_mask": attention(", mask=mask[None, None]"),
    "scaled_dot_product_attention_bias": attention(", bias=mask[None, None]"),
    "attention_unfused": "jax.nn.softmax(query @ key.mT * scale, -1) @ value",
}

EXPRESSIONS = POOLING | NORMALISATION | ATTENTION
