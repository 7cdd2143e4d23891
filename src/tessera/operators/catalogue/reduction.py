"""Reductions over all dims, over rows (`dim=-1`) and over columns (`dim=0`), and cumulative reductions.

A name without suffix reduces all dims or, if the operator requires a dim, rows. Names with `_rows` or `_cols` are
variants for which torch has separate code. By default, a backward pass reads the input and writes its gradient.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tessera.operators.catalogue.families import (
    LINEAR_GRADIENT,
    MATRIX_SIDES,
    NO_FLOAT16,
    NO_GRADIENT,
    WIDE_DTYPES,
    define_family,
    make_images,
    make_rows,
    make_square,
    make_vector,
    write_both,
)
from tessera.operators.draws import (
    Draw,
    between_multiples,
    booleans,
    constant,
    distinct_values,
    half_zero,
    integers,
    signs,
    spaced_values,
    uniform,
    unique_extremes,
)
from tessera.operators.operator import Input, Operator, OperatorCall, make_sizes

# the gradient is an expanded view
EXPANDED_GRADIENT: Mapping[str, Any] = {"backward_flops": 0.0, "backward_bytes": 0.0}


# the total is neither near zero, where rounding would dominate, nor above the range of 16 bits
OFF_CENTRE_VALUES = Draw("rng.standard_normal(shape) + 4 / np.prod(shape) ** 0.5")
VALUES_AROUND_ONE = Draw("np.exp(0.1 * rng.standard_normal(shape))")
SOME_NAN_VALUES = Draw("np.where(rng.random(shape) < 0.01, np.nan, rng.standard_normal(shape) + 0.1)")
SPACED_COLUMN_VALUES = Draw("(rng.random(shape).argsort(0) - shape[0] / 2) / 1024")
DISTINCT_OR_NAN_VALUES = Draw(f"np.where(rng.random(shape) < 0.01, np.nan, {distinct_values.expression})")
RARELY_TRUE_VALUES = Draw("rng.random(shape) < 1 / shape[-1]")
RARELY_FALSE_VALUES = Draw("rng.random(shape) > 1 / shape[-1]")

# the index among equal values is arbitrary: compare the value at the index
VALUES_AT_INDICES = "np.take_along_axis(i['data'], np.expand_dims(out[-1], i['dim']), i['dim'])"


_define_reduction = define_family("reduction", flops=1, flops_of="data", backward_flops=1.0)


def _define_dim_reduction(name: str, *sources: Any, dim: int = -1, **rest: Any) -> Operator:
    """Define a reduction with an attribute `dim`; `_rows` and `_cols` are not part of the function's name."""
    function = name.removesuffix("_rows").removesuffix("_cols")
    settings: dict[str, Any] = {**rest, "attributes": {"dim": dim, **rest.get("attributes", {})}}
    return _define_reduction(name, *sources, function=function, **settings)


def _count_correlation_flops(call: OperatorCall) -> float:
    rows, columns = call.shapes["data"]
    return 2.0 * rows * rows * columns


_PAIR_INPUTS = make_sizes(lambda n: {"lhs": Input((n, n)), "rhs": Input((n, n))}, *MATRIX_SIDES)
_POINT_INPUTS = make_sizes(lambda n: {"data": Input((n, 3))}, 1024, 2**17, 2**20)
_MATRIX_INPUTS = make_sizes(lambda n: {"data": Input((n, n))}, 64, 512, 1536)
_WEIGHTED_INPUTS = make_sizes(
    lambda n: {"data": Input((n,), integers(256), "int64"), "weights": Input((n,), uniform(0.0, 1.0), grad=False)},
    4096,
    2**20,
    2**24,
)
_COUNT_INPUTS = make_sizes(lambda n: {"data": Input((n,), integers(256), "int64")}, 4096, 2**20, 2**24)

OPERATORS = (
    # sums and products
    _define_reduction("sum", sizes=make_square(OFF_CENTRE_VALUES), **EXPANDED_GRADIENT),
    _define_dim_reduction("sum_rows", **EXPANDED_GRADIENT),
    _define_dim_reduction("sum_cols", dim=0, **EXPANDED_GRADIENT),
    _define_reduction("sum_channels", *write_both("sum(data, (0, 2, 3))"), make_images(), **EXPANDED_GRADIENT),
    _define_reduction(
        "sum_to_size", "data.sum_to_size(1, data.shape[1])", "np.sum(data, 0, keepdims=True)", **EXPANDED_GRADIENT
    ),
    _define_reduction("sum_int64", "torch.sum", "np.sum", make_square(integers(100), "int64"), **NO_GRADIENT),
    _define_dim_reduction("nansum", sizes=make_square(SOME_NAN_VALUES)),
    _define_reduction("prod", sizes=make_square(signs)),
    _define_dim_reduction("prod_rows", sizes=make_square(VALUES_AROUND_ONE), **WIDE_DTYPES),
    _define_reduction("mean", sizes=make_square(uniform(0.0, 2.0)), **LINEAR_GRADIENT, **NO_FLOAT16),
    _define_dim_reduction("mean_rows", **LINEAR_GRADIENT),
    _define_dim_reduction("mean_cols", dim=0, **LINEAR_GRADIENT),
    _define_reduction("mean_spatial", *write_both("mean(data, (2, 3))"), make_images(), **LINEAR_GRADIENT),
    _define_dim_reduction("nanmean", sizes=make_square(SOME_NAN_VALUES)),
    # variance and standard deviation
    _define_reduction("std", reference="np.std(data, ddof=1)", flops=3, **NO_FLOAT16),
    _define_dim_reduction("std_rows", "torch.std", "np.std(data, dim, ddof=1)", flops=3),
    _define_reduction("var", reference="np.var(data, ddof=1)", flops=3, **NO_FLOAT16),
    _define_dim_reduction("var_rows", "torch.var", "np.var(data, dim, ddof=1)", flops=3),
    _define_dim_reduction("var_cols", "torch.var", "np.var(data, dim, ddof=1)", dim=0, flops=3),
    _define_dim_reduction("std_mean", reference="(np.std(data, dim, ddof=1), np.mean(data, dim))", flops=3),
    _define_dim_reduction("var_mean", reference="(np.var(data, dim, ddof=1), np.mean(data, dim))", flops=3),
    _define_reduction("cov", sizes=_MATRIX_INPUTS, flops=_count_correlation_flops),
    _define_reduction("corrcoef", sizes=_MATRIX_INPUTS, flops=_count_correlation_flops),
    # norms
    # larger tolerance: torch's norm of 16 million float32 values had a measured error of 6.5e-4
    _define_reduction("norm", reference="np.linalg.norm", flops=2, tolerance=5.0),
    _define_dim_reduction(
        "norm_rows",
        "torch.norm(data, p, dim)",
        "np.linalg.norm(data, p, dim)",
        make_square(between_multiples(-3, 3)),
        attributes={"p": 1},
        flops=2,
    ),
    _define_reduction(
        "renorm",
        reference="ref.renorm",
        attributes=lambda shapes: {"p": 2, "dim": 0, "maxnorm": math.sqrt(shapes["data"][1])},
        flops=3,
    ),
    _define_reduction(
        "dist", reference="np.linalg.norm(lhs - rhs)", sizes=_PAIR_INPUTS, flops=3, flops_of="lhs", tolerance=5.0
    ),
    _define_dim_reduction("logsumexp", reference="special.logsumexp(data, axis=dim)", flops=3),
    # minima and maxima
    _define_reduction("max", sizes=make_square(unique_extremes)),
    _define_dim_reduction(
        "max_rows", "torch.max", "(np.max(data, dim), np.argmax(data, dim))", make_square(distinct_values)
    ),
    _define_dim_reduction(
        "max_cols",
        "torch.max",
        "(np.max(data, dim), np.argmax(data, dim))",
        make_square(SPACED_COLUMN_VALUES),
        dim=0,
        **WIDE_DTYPES,
    ),
    _define_reduction("min", sizes=make_square(unique_extremes)),
    _define_dim_reduction(
        "min_rows", "torch.min", "(np.min(data, dim), np.argmin(data, dim))", make_square(distinct_values)
    ),
    _define_reduction("amax", reference="np.max", sizes=make_square(unique_extremes)),
    _define_dim_reduction("amax_rows", "torch.amax", "np.max", make_square(distinct_values)),
    _define_reduction("amin", reference="np.min", sizes=make_square(unique_extremes)),
    _define_dim_reduction("amin_rows", "torch.amin", "np.min", make_square(distinct_values)),
    _define_reduction("aminmax", reference="(np.min(data), np.max(data))", sizes=make_square(unique_extremes)),
    _define_dim_reduction(
        "aminmax_rows",
        "torch.aminmax(data, dim=dim)",
        "(np.min(data, dim), np.max(data, dim))",
        make_square(distinct_values),
    ),
    _define_reduction("argmax", sizes=make_square(unique_extremes), **NO_GRADIENT),
    _define_dim_reduction("argmax_rows", "torch.argmax", "np.argmax", checked=VALUES_AT_INDICES, **NO_GRADIENT),
    _define_reduction("argmin", sizes=make_square(unique_extremes), **NO_GRADIENT),
    _define_dim_reduction("argmin_rows", "torch.argmin", "np.argmin", checked=VALUES_AT_INDICES, **NO_GRADIENT),
    # order statistics
    _define_reduction(
        "median", reference="np.sort(data)[(len(data) - 1) // 2]", sizes=make_vector(spaced_values), **WIDE_DTYPES
    ),
    _define_dim_reduction("median_rows", "torch.median", "ref.median", make_rows()),
    _define_dim_reduction("nanmedian", reference="ref.median", sizes=make_rows(DISTINCT_OR_NAN_VALUES)),
    _define_dim_reduction(
        "mode",
        reference="ref.mode",
        sizes=make_rows(integers(32), "int64"),
        checked=f"(out[0], {VALUES_AT_INDICES})",
        **NO_GRADIENT,
    ),
    _define_dim_reduction(
        "quantile", *write_both("quantile(data, q, dim)"), make_rows(), attributes={"q": 0.7}, **WIDE_DTYPES
    ),
    _define_dim_reduction(
        "nanquantile",
        *write_both("nanquantile(data, q, dim)"),
        make_rows(DISTINCT_OR_NAN_VALUES),
        attributes={"q": 0.7},
        **WIDE_DTYPES,
    ),
    # any, all and counts
    _define_reduction("any", sizes=make_square(constant(0.0), "bool"), **NO_GRADIENT),
    _define_dim_reduction("any_rows", sizes=make_square(RARELY_TRUE_VALUES, "bool"), **NO_GRADIENT),
    _define_reduction("all", sizes=make_square(constant(1.0), "bool"), **NO_GRADIENT),
    _define_dim_reduction("all_rows", sizes=make_square(RARELY_FALSE_VALUES, "bool"), **NO_GRADIENT),
    _define_reduction("count_nonzero", sizes=make_square(half_zero), **NO_GRADIENT),
    _define_dim_reduction("count_nonzero_rows", sizes=make_square(half_zero), **NO_GRADIENT),
    _define_reduction("sum_bool", "torch.sum", "np.sum", make_square(booleans, "bool"), **NO_GRADIENT),
    _define_reduction("bincount", sizes=_COUNT_INPUTS, **NO_GRADIENT),
    _define_reduction("bincount_weighted", "torch.bincount", "np.bincount", _WEIGHTED_INPUTS, **NO_GRADIENT),
    _define_reduction(
        "histc",
        reference="np.histogram(data, bins, (low, high))[0]",
        attributes={"bins": 64, "low": -4.0, "high": 4.0},
        **WIDE_DTYPES,
        **NO_GRADIENT,
    ),
    _define_reduction(
        "histogram",
        "torch.histogram(data, bins, range=(low, high))",
        "np.histogram(data, bins, (low, high))",
        make_vector(),
        attributes={"bins": 64, "low": -4.0, "high": 4.0},
        **WIDE_DTYPES,
        **NO_GRADIENT,
    ),
    _define_reduction(
        "histogramdd",
        "torch.histogramdd(data, [bins] * 3, range=[low, high] * 3)",
        "np.histogramdd(data, [bins] * 3, [(low, high)] * 3)",
        _POINT_INPUTS,
        attributes={"bins": 16, "low": -4.0, "high": 4.0},
        **WIDE_DTYPES,
        **NO_GRADIENT,
    ),
    # cumulative reductions
    _define_dim_reduction("cumsum", **LINEAR_GRADIENT),
    _define_dim_reduction("cumsum_cols", dim=0, **LINEAR_GRADIENT),
    _define_dim_reduction("cumprod", sizes=make_square(VALUES_AROUND_ONE), **WIDE_DTYPES),
    _define_dim_reduction("cummax", reference="ref.cummax", sizes=make_square(distinct_values)),
    _define_dim_reduction("cummin", reference="ref.cummin", sizes=make_square(distinct_values)),
    _define_dim_reduction("logcumsumexp", reference="np.logaddexp.accumulate", flops=4),
    _define_dim_reduction("diff", "torch.diff(data, dim=dim)", "np.diff(data, axis=dim)", **LINEAR_GRADIENT),
    _define_dim_reduction(
        "trapezoid", "torch.trapezoid(data, dim=dim)", "scipy.integrate.trapezoid(data, axis=dim)", **LINEAR_GRADIENT
    ),
    _define_dim_reduction(
        "cumulative_trapezoid",
        "torch.cumulative_trapezoid(data, dim=dim)",
        "scipy.integrate.cumulative_trapezoid(data, axis=dim)",
        flops=3,
        **LINEAR_GRADIENT,
    ),
)
