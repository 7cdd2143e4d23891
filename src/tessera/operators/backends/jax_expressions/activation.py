"""Activations in JAX."""

from __future__ import annotations

EXPRESSIONS = {
    **{name: f"jax.nn.{name}(data)" for name in ("relu", "relu6", "selu", "sigmoid", "silu", "mish")},
    "leaky_relu": "jax.nn.leaky_relu(data, negative_slope)",
    "prelu": "jnp.where(data > 0, data, weight[:, None, None] * data)",
    "rrelu": "jax.nn.leaky_relu(data, (lower + upper) / 2)",
    "hardtanh": "jnp.clip(data, min_val, max_val)",
    "hardsigmoid": "jax.nn.hard_sigmoid(data)",
    "hardswish": "jax.nn.hard_swish(data)",
    "hardshrink": "jnp.where(jnp.abs(data) > lambd, data, 0)",
    "softshrink": "data - jnp.clip(data, -lambd, lambd)",
    "threshold": "jnp.where(data > threshold, data, value)",
    "elu": "jax.nn.elu(data, alpha)",
    "celu": "jax.nn.celu(data, alpha)",
    "logsigmoid": "jax.nn.log_sigmoid(data)",
    "gelu": "jax.nn.gelu(data, approximate=False)",
    "gelu_tanh": "jax.nn.gelu(data, approximate=True)",
    "softplus": "jax.nn.softplus(data * beta) / beta",
    "softsign": "jax.nn.soft_sign(data)",
    "tanhshrink": "data - jnp.tanh(data)",
    "glu": "jax.nn.glu(data, dim)",
    "softmax": "jax.nn.softmax(data, dim)",
    "log_softmax": "jax.nn.log_softmax(data, dim)",
    "softmin": "jax.nn.softmax(-data, dim)",
    "gumbel_softmax": "jax.nn.softmax((data + jax.random.gumbel(rng, data.shape, data.dtype)) / tau, dim)",
}
