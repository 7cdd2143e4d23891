"""Reductions, running sums, sorting and searching in JAX."""

from __future__ import annotations

# with dim: rows and columns run the same expression
SPREAD = "(jnp.{}(data, dim, ddof=1), jnp.mean(data, dim))"
BOTH = "(jnp.{0}(data, dim), jnp.arg{0}(data, dim))"
# values and where each was
PLACES = "lax.broadcasted_iota(int, data.shape, dim % data.ndim)"
SORTED = f"lax.sort_key_val(data, {PLACES}, dimension=dim, is_stable=False)"
ORDER = "jnp.argsort(data, dim, stable=False, descending=True)"
DESCENDING = f"(lambda order: (jnp.take_along_axis(data, order, dim), order))({ORDER})"

REDUCTION = {
    **{name: f"jnp.{name}(data)" for name in ("sum", "prod", "mean", "max", "min", "any", "all", "argmax", "argmin")},
    **{name: f"jnp.{name}(data)" for name in ("count_nonzero", "corrcoef", "cov")},
    **{
        f"{name}_rows": f"jnp.{name}(data, dim)"
        for name in ("sum", "prod", "mean", "any", "all", "argmax", "argmin", "count_nonzero")
    },
    **{name: f"jnp.{name}(data, dim)" for name in ("nansum", "nanmean")},
    "sum_cols": "jnp.sum(data, dim)",
    "sum_channels": "jnp.sum(data, (0, 2, 3))",
    "sum_to_size": "jnp.sum(data, 0, keepdims=True)",
    "sum_int64": "jnp.sum(data)",
    "sum_bool": "jnp.sum(data)",
    "mean_cols": "jnp.mean(data, dim)",
    "mean_spatial": "jnp.mean(data, (2, 3))",
    "std": "jnp.std(data, ddof=1)",
    "std_rows": "jnp.std(data, dim, ddof=1)",
    "var": "jnp.var(data, ddof=1)",
    "var_rows": "jnp.var(data, dim, ddof=1)",
    "var_cols": "jnp.var(data, dim, ddof=1)",
    "std_mean": SPREAD.format("std"),
    "var_mean": SPREAD.format("var"),
    "norm": "jnp.linalg.norm(data)",
    "norm_rows": "jnp.linalg.norm(data, p, dim)",
    "dist": "jnp.linalg.norm(lhs - rhs)",
    "logsumexp": "jax.nn.logsumexp(data, dim)",
    "max_rows": BOTH.format("max"),
    "max_cols": BOTH.format("max"),
    "min_rows": BOTH.format("min"),
    "amax": "jnp.max(data)",
    "amax_rows": "jnp.max(data, dim)",
    "amin": "jnp.min(data)",
    "amin_rows": "jnp.min(data, dim)",
    "aminmax": "(jnp.min(data), jnp.max(data))",
    "aminmax_rows": "(jnp.min(data, dim), jnp.max(data, dim))",
    "median": "jnp.sort(data)[(len(data) - 1) // 2]",
    "median_rows": f"[jnp.take(each, (data.shape[dim] - 1) // 2, dim) for each in {SORTED}]",
    "quantile": "jnp.quantile(data, q, dim)",
    "nanquantile": "jnp.nanquantile(data, q, dim)",
    "histc": "jnp.histogram(data, bins, (low, high))[0]",
    "histogram": "jnp.histogram(data, bins, (low, high))",
    "histogramdd": "jnp.histogramdd(data, [bins] * 3, [(low, high)] * 3)",
    "cumsum": "jnp.cumsum(data, dim)",
    "cumsum_cols": "jnp.cumsum(data, dim)",
    "cumprod": "jnp.cumprod(data, dim)",
    "logcumsumexp": "lax.cumlogsumexp(data, dim % data.ndim)",
    "diff": "jnp.diff(data, axis=dim)",
    "trapezoid": "jnp.trapezoid(data, axis=dim)",
    "cumulative_trapezoid": "jnp.cumsum((data[..., 1:] + data[..., :-1]) / 2, dim)",
}
SORTING = {
    "sort": SORTED,
    "sort_stable": SORTED.replace("False", "True"),
    "sort_cols": SORTED,
    "sort_vector": SORTED,
    "sort_int64": SORTED,
    "sort_uint8": SORTED,
    "sort_descending": DESCENDING,
    "msort": "jnp.sort(data, 0)",
    "argsort": "jnp.argsort(data, dim, stable=False)",
    "argsort_stable": "jnp.argsort(data, dim)",
    "topk": "lax.top_k(data, k, axis=dim)",
    "topk_unsorted": "lax.top_k(data, k, axis=dim)",
    "topk_vector": "lax.top_k(data, k, axis=dim)",
    "kthvalue": f"[jnp.take(each, k - 1, dim) for each in {SORTED}]",
    "searchsorted": "jnp.searchsorted(sorted_sequence, data)",
    "searchsorted_ordered": "jnp.searchsorted(sorted_sequence, data)",
    "searchsorted_rows": "jax.vmap(jnp.searchsorted)(sorted_sequence, data)",
    "bucketize": "jnp.searchsorted(boundaries, data)",
}

EXPRESSIONS = REDUCTION | SORTING
