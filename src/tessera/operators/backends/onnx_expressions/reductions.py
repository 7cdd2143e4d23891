"""ONNX expressions of reductions, cumulative reductions, sorting and searching."""

from __future__ import annotations

from collections.abc import Mapping

# over all dims, and over one dim
FULL_REDUCTIONS = {
    "all": "ReduceMin",
    "amax": "ReduceMax",
    "amin": "ReduceMin",
    "any": "ReduceMax",
    "max": "ReduceMax",
    "mean": "ReduceMean",
    "min": "ReduceMin",
    "norm": "ReduceL2",
    "prod": "ReduceProd",
    "sum": "ReduceSum",
}
DIM_REDUCTIONS = {
    **{f"{name}_rows": FULL_REDUCTIONS[name] for name in ("all", "amax", "amin", "any", "mean", "prod", "sum")},
    "logsumexp": "ReduceLogSumExp",
    "norm_rows": "ReduceL1",
}


def write_variance(axes: str, count: str) -> str:
    """Return the source of the unbiased variance over `axes`, along which there are `count` values."""
    centred = f"op.Sub(data, op.ReduceMean(data, {axes}))"
    return f"op.Div(op.ReduceSumSquare({centred}, {axes}, keepdims=0), float({count} - 1))"


VARIANCE, VARIANCE_OVER_DIM = write_variance("None", "np.prod(data.shape)"), write_variance("[dim]", "data.shape[dim]")

OTHER_EXPRESSIONS = {
    "aminmax": "(op.ReduceMin(data, keepdims=0), op.ReduceMax(data, keepdims=0))",
    "aminmax_rows": "(op.ReduceMin(data, [dim], keepdims=0), op.ReduceMax(data, [dim], keepdims=0))",
    "argmax": "op.ArgMax(op.Reshape(data, [-1]), axis=0, keepdims=0)",
    "argmax_rows": "op.ArgMax(data, axis=dim, keepdims=0)",
    "argmin": "op.ArgMin(op.Reshape(data, [-1]), axis=0, keepdims=0)",
    "argmin_rows": "op.ArgMin(data, axis=dim, keepdims=0)",
    "count_nonzero": "op.ReduceSum(op.Cast(op.Cast(data, to=types.BOOL), to=types.INT64), keepdims=0)",
    "count_nonzero_rows": "op.ReduceSum(op.Cast(op.Cast(data, to=types.BOOL), to=types.INT64), [dim], keepdims=0)",
    "cumprod": "op.CumProd(data, dim)",
    "cumsum": "op.CumSum(data, dim)",
    "diff": "op.Sub(op.Slice(data, [1], [data.shape[dim]], [dim]), op.Slice(data, [0], [-1], [dim]))",
    "dist": "op.ReduceL2(op.Sub(lhs, rhs), keepdims=0)",
    "max_rows": "(op.ReduceMax(data, [dim], keepdims=0), op.ArgMax(data, axis=dim, keepdims=0))",
    "mean_spatial": "op.ReduceMean(data, [2, 3], keepdims=0)",
    "min_rows": "(op.ReduceMin(data, [dim], keepdims=0), op.ArgMin(data, axis=dim, keepdims=0))",
    "nansum": "op.ReduceSum(op.Where(op.IsNaN(data), 0.0, data), [dim], keepdims=0)",
    "std": f"op.Sqrt({VARIANCE})",
    "std_mean": f"(op.Sqrt({VARIANCE_OVER_DIM}), op.ReduceMean(data, [dim], keepdims=0))",
    "std_rows": f"op.Sqrt({VARIANCE_OVER_DIM})",
    "sum_bool": "op.ReduceSum(op.Cast(data, to=types.INT64), keepdims=0)",
    "sum_channels": "op.ReduceSum(data, [0, 2, 3], keepdims=0)",
    "var": VARIANCE,
    "var_mean": f"({VARIANCE_OVER_DIM}, op.ReduceMean(data, [dim], keepdims=0))",
    "var_rows": VARIANCE_OVER_DIM,
}

SORT_CALL = "op.TopK(data, [data.shape[dim]], axis=dim, largest=0)"
SORTING_EXPRESSIONS = {
    "argsort": f"{SORT_CALL}[1]",
    "argsort_stable": f"{SORT_CALL}[1]",  # TopK returns equal values in the order of their indices
    "kthvalue": "[op.Gather(part, k - 1, axis=dim) for part in op.TopK(data, [k], axis=dim, largest=0)]",
    "msort": "op.TopK(data, [data.shape[0]], axis=0, largest=0)[0]",
    "sort": SORT_CALL,
    "sort_descending": "op.TopK(data, [data.shape[dim]], axis=dim)",
    "sort_stable": SORT_CALL,
    "topk": "op.TopK(data, [k], axis=dim)",
    "topk_unsorted": "op.TopK(data, [k], axis=dim, sorted=0)",
    "unique": "op.Unique(data)",
    "unique_counts": "(lambda parts: (parts[0], parts[2], parts[3]))(op.Unique(data, outputs=4))",
    "unique_rows": "op.Unique(data, axis=0)",
}

REDUCTION_EXPRESSIONS: Mapping[str, str] = {
    **{name: f"op.{kind}(data, keepdims=0)" for name, kind in FULL_REDUCTIONS.items()},
    **{name: f"op.{kind}(data, [dim], keepdims=0)" for name, kind in DIM_REDUCTIONS.items()},
    **OTHER_EXPRESSIONS,
    **SORTING_EXPRESSIONS,
}
