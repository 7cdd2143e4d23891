"""Reductions, running ones, sorting and searching."""

from __future__ import annotations

# what reduces rows or columns -> its name in nd
_ALONG = {
    "sum_rows": "sum",
    "sum_cols": "sum",
    "nansum": "nansum",
    "prod_rows": "prod",
    "mean_rows": "mean",
    "mean_cols": "mean",
    "amax_rows": "max",
    "amin_rows": "min",
}
# what reduces everything, to no dims at all -> its name in mnp: nd would leave one dim
_WHOLE = {
    "sum": "sum",
    "sum_int64": "sum",
    "prod": "prod",
    "mean": "mean",
    "max": "max",
    "min": "min",
    "amax": "max",
    "amin": "min",
    "argmax": "argmax",
    "argmin": "argmin",
    "any": "any",
    "all": "all",
    "norm": "linalg.norm",
}
# values and places in order; less than one of them means all
_SORT = "nd.topk(data, axis=dim, k=0, ret_typ='both', is_ascend={}, dtype='int64')"
_TOPK = "nd.topk(data, axis=dim, k=k, ret_typ='both', dtype='int64')"

EXPRESSIONS = {
    **{name: f"nd.{call}(data, axis=dim)" for name, call in _ALONG.items()},
    **{name: f"mnp.{call}(data)" for name, call in _WHOLE.items()},
    "sum_channels": "nd.sum(data, axis=(0, 2, 3))",
    "mean_spatial": "nd.mean(data, axis=(2, 3))",
    "std": "mnp.std(data, ddof=1)",
    "std_rows": "mnp.std(data, axis=dim, ddof=1)",
    "var": "mnp.var(data, ddof=1)",
    "var_rows": "mnp.var(data, axis=dim, ddof=1)",
    "var_cols": "mnp.var(data, axis=dim, ddof=1)",
    "norm_rows": "nd.norm(data, ord=p, axis=dim)",
    "argmax_rows": "mnp.argmax(data, axis=dim)",
    "argmin_rows": "mnp.argmin(data, axis=dim)",
    "quantile": "mnp.quantile(data, q, axis=dim)",
    "any_rows": "mnp.any(data, axis=dim)",
    "all_rows": "mnp.all(data, axis=dim)",
    "bincount": "mnp.bincount(data)",
    "bincount_weighted": "mnp.bincount(data, weights)",
    "histc": "mnp.histogram(data, bins=bins, range=(low, high))[0]",
    "histogram": "mnp.histogram(data, bins=bins, range=(low, high))",
    "cumsum": "mnp.cumsum(data, axis=dim % len(shapes['data']))",
    "cumsum_cols": "mnp.cumsum(data, axis=dim)",
    "diff": "mnp.diff(data, axis=dim)",
    # sorting
    **{name: _SORT.format(True) for name in ("sort", "sort_cols", "sort_vector", "sort_int64", "sort_uint8")},
    "sort_descending": _SORT.format(False),
    "msort": "nd.sort(data, axis=0)",
    "argsort": "nd.argsort(data, axis=dim, dtype='int64')",
    "topk": _TOPK,
    "topk_vector": _TOPK,
    "unique": "mnp.unique(data)",
    "unique_float": "mnp.unique(data)",
    "unique_counts": "mnp.unique(data, return_inverse=True, return_counts=True)",
    "unique_rows": "mnp.unique(data, axis=0)",
}
