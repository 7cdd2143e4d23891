"""How OpenVINO writes reductions, running ones, sorting and searching."""

from __future__ import annotations

from collections.abc import Mapping

# over everything, and over one dim
REDUCTIONS = {
    "all": "reduce_logical_and",
    "amax": "reduce_max",
    "amin": "reduce_min",
    "any": "reduce_logical_or",
    "max": "reduce_max",
    "mean": "reduce_mean",
    "min": "reduce_min",
    "norm": "reduce_l2",
    "prod": "reduce_prod",
    "sum": "reduce_sum",
    "sum_int64": "reduce_sum",
}
ALONG = {
    "all_rows": "reduce_logical_and",
    "amax_rows": "reduce_max",
    "amin_rows": "reduce_min",
    "any_rows": "reduce_logical_or",
    "mean_cols": "reduce_mean",
    "mean_rows": "reduce_mean",
    "norm_rows": "reduce_l1",
    "prod_rows": "reduce_prod",
    "sum_cols": "reduce_sum",
    "sum_rows": "reduce_sum",
}

_EXTREME = "[op.squeeze(out, [dim]) for out in op.topk(data, 1, dim, '{mode}', 'none', 'i64').outputs()]"
_FLAT_EXTREME = "op.squeeze(op.topk(op.reshape(data, [-1], False), 1, 0, '{mode}', 'none', 'i64').output(1), [0])"
_SPREAD = "op.subtract(data, op.reduce_mean(data, {axes}, True))"
_VARIANCE = "op.divide(op.reduce_sum(op.power({spread}, real(2.0)), {axes}, False), real(float({count} - 1)))"
_OF_ALL = {"axes": "[0, 1]", "count": "np.prod(data.shape)", "spread": _SPREAD.format(axes="[0, 1]")}
_OF_DIM = {"axes": "[dim]", "count": "data.shape[dim]", "spread": _SPREAD.format(axes="[dim]")}
VARIANCE, VARIANCE_ALONG = _VARIANCE.format(**_OF_ALL), _VARIANCE.format(**_OF_DIM)

OTHERS = {
    "aminmax": "(op.reduce_min(data, [0, 1], False), op.reduce_max(data, [0, 1], False))",
    "aminmax_rows": "(op.reduce_min(data, [dim], False), op.reduce_max(data, [dim], False))",
    "argmax": _FLAT_EXTREME.format(mode="max"),
    "argmax_rows": _EXTREME.format(mode="max") + "[1]",
    "argmin": _FLAT_EXTREME.format(mode="min"),
    "argmin_rows": _EXTREME.format(mode="min") + "[1]",
    "count_nonzero": "op.reduce_sum(op.convert(op.not_equal(data, real(0.0)), 'i64'), [0, 1], False)",
    "count_nonzero_rows": "op.reduce_sum(op.convert(op.not_equal(data, real(0.0)), 'i64'), [dim], False)",
    "cumsum": "op.cum_sum(data, dim)",
    "cumsum_cols": "op.cum_sum(data, dim)",
    "diff": ("op.subtract(op.slice(data, [1], [data.shape[dim]], [1], [dim]), op.slice(data, [0], [-1], [1], [dim]))"),
    "dist": "op.reduce_l2(op.subtract(lhs, rhs), [0, 1], False)",
    "max_cols": _EXTREME.format(mode="max"),
    "max_rows": _EXTREME.format(mode="max"),
    "mean_spatial": "op.reduce_mean(data, [2, 3], False)",
    "min_rows": _EXTREME.format(mode="min"),
    "nansum": "op.reduce_sum(op.select(op.is_nan(data), real(0.0), data), [dim], False)",
    "std": f"op.sqrt({VARIANCE})",
    "std_mean": f"(op.sqrt({VARIANCE_ALONG}), op.reduce_mean(data, [dim], False))",
    "std_rows": f"op.sqrt({VARIANCE_ALONG})",
    "sum_bool": "op.reduce_sum(op.convert(data, 'i64'), [0, 1], False)",
    "sum_channels": "op.reduce_sum(data, [0, 2, 3], False)",
    "var": VARIANCE,
    "var_cols": VARIANCE_ALONG,
    "var_mean": f"({VARIANCE_ALONG}, op.reduce_mean(data, [dim], False))",
    "var_rows": VARIANCE_ALONG,
}

SORT = "op.topk(data, data.shape[dim], dim, 'min', 'value', 'i64')"
SORTING = {
    "argsort": f"{SORT}.output(1)",
    "argsort_stable": "op.topk(data, data.shape[dim], dim, 'min', 'value', 'i64', True).output(1)",
    "bucketize": "op.bucketize(data, boundaries, 'i64')",
    "kthvalue": "[op.gather(out, k - 1, dim) for out in op.topk(data, k, dim, 'min', 'value', 'i64').outputs()]",
    "msort": "op.topk(data, data.shape[0], 0, 'min', 'value', 'i64').output(0)",
    "searchsorted": "op.bucketize(data, sorted_sequence, 'i64')",
    "searchsorted_ordered": "op.bucketize(data, sorted_sequence, 'i64')",
    "sort": SORT,
    "sort_cols": SORT,
    "sort_descending": "op.topk(data, data.shape[dim], dim, 'max', 'value', 'i64')",
    "sort_stable": "op.topk(data, data.shape[dim], dim, 'min', 'value', 'i64', True)",
    "sort_uint8": SORT,
    "sort_vector": SORT,
    "topk": "op.topk(data, k, dim, 'max', 'value', 'i64')",
    "topk_unsorted": "op.topk(data, k, dim, 'max', 'none', 'i64')",
    "topk_vector": "op.topk(data, k, dim, 'max', 'value', 'i64')",
    "unique": "op.unique(data).output(0)",
    "unique_counts": "(lambda found: [found.output(number) for number in (0, 2, 3)])(op.unique(data))",
    "unique_float": "op.unique(data).output(0)",
    "unique_rows": "op.unique(data, 0).output(0)",
}

_EVERYTHING = "list(range(len(data.shape)))"
REDUCING: Mapping[str, str] = {
    **{name: f"op.{kind}(data, {_EVERYTHING}, False)" for name, kind in REDUCTIONS.items()},
    **{name: f"op.{kind}(data, [dim], False)" for name, kind in ALONG.items()},
    **OTHERS,
    **SORTING,
}
