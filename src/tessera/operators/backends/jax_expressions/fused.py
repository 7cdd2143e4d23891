"""Operators that are commonly fused, in JAX: written as their steps, which XLA fuses by itself."""

from __future__ import annotations

from tessera.operators.backends.jax_expressions.convolution import conv

CONV = f"{conv(2, padding='1')} + bias[:, None, None]"
NORM = (
    "(lambda y: (y - running_mean[:, None, None]) * lax.rsqrt(running_var[:, None, None] + 1e-5)"
    " * scale[:, None, None] + shift[:, None, None])"
)
LAYER_NORM = "jax.nn.standardize({}, axis=-1, epsilon=1e-5)"

EXPRESSIONS = {
    "conv2d_relu": f"jax.nn.relu({CONV})",
    "conv2d_batch_norm": f"{NORM}({CONV})",
    "conv2d_batch_norm_relu": f"jax.nn.relu({NORM}({CONV}))",
    "conv2d_add_relu": f"jax.nn.relu({CONV} + residual)",
    "conv2d_silu": f"jax.nn.silu({CONV})",
    "linear_gelu": "jax.nn.gelu(data @ weight.T + bias, approximate=False)",
    "linear_relu": "jax.nn.relu(data @ weight.T + bias)",
    "matmul_bias_relu": "jax.nn.relu(data @ weight + bias)",
    "layer_norm_linear": f"({LAYER_NORM.format('data')} * scale + shift) @ weight.T + bias",
    "softmax_matmul": "jax.nn.softmax(data, axis=-1) @ weight",
    "matmul_softmax_matmul": "jax.nn.softmax(query @ key.swapaxes(-2, -1) * query.shape[-1] ** -0.5, axis=-1) @ value",
    "multiply_add": "lhs * rhs + other",
    "multiply_add_tanh": "jnp.tanh(lhs * rhs + other)",
    "add_relu": "jax.nn.relu(lhs + rhs)",
    "silu_multiply": "jax.nn.silu(lhs) * rhs",
    "add_layer_norm": LAYER_NORM.format("lhs + rhs"),
    "scale_softmax": "jax.nn.softmax(data * 0.125, axis=-1)",
    "subtract_square_mean": "jnp.mean(jnp.square(lhs - rhs))",
}
