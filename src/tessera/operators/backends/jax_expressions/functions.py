"""JAX expressions of elementwise functions, activations, reductions, sorting and searching."""

from __future__ import annotations

FUNCTION_EXPRESSIONS = {
    "addcmul": "data + value * first * second",
    "addcdiv": "data + value * first / second",
    "lerp": "lhs + weight * (rhs - lhs)",
    "rsqrt": "lax.rsqrt(data)",
    "special_spherical_bessel_j0": "jnp.sinc(data / jnp.pi)",
}
ACTIVATION_EXPRESSIONS = {
    **{name: f"jax.nn.{name}(data)" for name in ("relu", "relu6", "selu", "sigmoid", "silu", "mish")},
    "leaky_relu": "jax.nn.leaky_relu(data, negative_slope)",
    "prelu": "jnp.where(data > 0, data, weight[:, None, None] * data)",
    "rrelu": "jax.nn.leaky_relu(data, (lower + upper) / 2)",
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
    "glu": "jax.nn.glu(data, dim)",
    "softmax": "jax.nn.softmax(data, dim)",
    "log_softmax": "jax.nn.log_softmax(data, dim)",
    "softmin": "jax.nn.softmax(-data, dim)",
    "gumbel_softmax": "jax.nn.softmax((data + jax.random.gumbel(rng, data.shape, data.dtype)) / tau, dim)",
}

# indices along `dim`, and sorts that return values and their indices
INDICES = "lax.broadcasted_iota(int, data.shape, dim % data.ndim)"
SORT_WITH_INDICES = f"lax.sort_key_val(data, {INDICES}, dimension=dim, is_stable=False)"
DESCENDING_ORDER = "jnp.argsort(data, dim, stable=False, descending=True)"
SORT_DESCENDING = f"(lambda order: (jnp.take_along_axis(data, order, dim), order))({DESCENDING_ORDER})"

REDUCTION_EXPRESSIONS = {
    "median_rows": f"[jnp.take(each, (data.shape[dim] - 1) // 2, dim) for each in {SORT_WITH_INDICES}]",
    "logcumsumexp": "lax.cumlogsumexp(data, dim % data.ndim)",
    "trapezoid": "jnp.trapezoid(data, axis=dim)",
    "cumulative_trapezoid": "jnp.cumsum((data[..., 1:] + data[..., :-1]) / 2, dim)",
}
SORTING_EXPRESSIONS = {
    "sort": SORT_WITH_INDICES,
    "sort_stable": SORT_WITH_INDICES.replace("False", "True"),
    "sort_descending": SORT_DESCENDING,
    "argsort": "jnp.argsort(data, dim, stable=False)",
    "argsort_stable": "jnp.argsort(data, dim)",
    "topk": "lax.top_k(data, k, axis=dim)",
    "topk_unsorted": "lax.top_k(data, k, axis=dim)",
    "kthvalue": f"[jnp.take(each, k - 1, dim) for each in {SORT_WITH_INDICES}]",
    "searchsorted_rows": "jax.vmap(jnp.searchsorted)(sorted_sequence, data)",
}

EXPRESSIONS = FUNCTION_EXPRESSIONS | ACTIVATION_EXPRESSIONS | REDUCTION_EXPRESSIONS | SORTING_EXPRESSIONS
