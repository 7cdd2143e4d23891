"""Reductions: over everything, over rows (`dim=-1`), over columns (`dim=0`), and running ones.

A name alone reduces everything or, for those that always have a dim, rows; `_rows` and `_cols` are variants that run
other code. A backward pass writes the gradient of the input, and reads the input too unless it says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tessera.operators.catalogue.elementwise import NO_GRADIENT, WIDE
from tessera.operators.catalogue.layouts import Sizes, images, square, table, vector
from tessera.operators.draws import (
    Draw,
    booleans,
    cells,
    constant,
    distinct,
    half_zero,
    integers,
    lone_extremes,
    signs,
    spaced,
    uniform,
)
from tessera.operators.operator import Call, Input, Operator, by_size
from tessera.operators.work import per_input

UNREAD: Mapping[str, Any] = {"backward_flops": 1.0, "backward_bytes": 1.0}  # the backward pass needs no input
EXPANDED: Mapping[str, Any] = {"backward_flops": 0.0, "backward_bytes": 0.0}  # nor writes: its gradient is a view

# the gradient of an average of a million values is below what float16 holds
NOT_HALF: Mapping[str, Any] = {"dtypes": ("float32", "float64", "bfloat16")}

# the sum of all stays clear of zero, where rounding would be all that is left, and below what 16 bits hold
OFF_CENTRE = Draw("rng.standard_normal(shape) + 4 / np.prod(shape) ** 0.5")
AROUND_ONE = Draw("np.exp(0.1 * rng.standard_normal(shape))")
SOME_NAN = Draw("np.where(rng.random(shape) < 0.01, np.nan, rng.standard_normal(shape) + 0.1)")
SPACED_COLUMNS = Draw("(rng.random(shape).argsort(0) - shape[0] / 2) / 1024")
DISTINCT_OR_NAN = Draw(f"np.where(rng.random(shape) < 0.01, np.nan, {distinct.expression})")
RARELY_TRUE = Draw("rng.random(shape) < 1 / shape[-1]")
RARELY_FALSE = Draw("rng.random(shape) > 1 / shape[-1]")

# where equal values leave the choice of an index free, what it points at counts
POINTED_AT = "np.take_along_axis(i['data'], np.expand_dims(out[-1], i['dim']), i['dim'])"


def _all(name: str, torch: str, reference: str, sizes: Sizes | None = None, **rest: Any) -> Operator:
    settings: dict[str, Any] = {"flops": per_input("data"), "backward_flops": 1.0, **rest}
    return Operator(
        name=name, category="reduction", torch=torch, reference=reference, sizes=sizes or square(), **settings
    )


def _along(
    name: str, torch: str, reference: str, sizes: Sizes | None = None, *, dim: int = -1, **rest: Any
) -> Operator:
    settings: dict[str, Any] = {**rest, "attributes": {"dim": dim, **rest.get("attributes", {})}}
    return _all(name, torch, reference, sizes, **settings)


def _correlation_flops(call: Call) -> float:
    rows, columns = call.shapes["data"]
    return 2.0 * rows * rows * columns


_PAIR = by_size(lambda n: {"lhs": Input(shape=(n, n)), "rhs": Input(shape=(n, n))}, 64, 1024, 4096)
_POINTS = by_size(lambda n: {"data": Input(shape=(n, 3))}, 1024, 2**17, 2**20)
_MATRIX = by_size(lambda n: {"data": Input(shape=(n, n))}, 64, 512, 1536)
_WEIGHTED = by_size(
    lambda n: {
        "data": Input(shape=(n,), draw=integers(256), kind="int64"),
        "weights": Input(shape=(n,), draw=uniform(0.0, 1.0), grad=False),
    },
    4096,
    2**20,
    2**24,
)
_COUNTED = by_size(lambda n: {"data": Input(shape=(n,), draw=integers(256), kind="int64")}, 4096, 2**20, 2**24)

OPERATORS = (
    # sums and products
    _all("sum", "torch.sum(data)", "np.sum(data)", square(OFF_CENTRE), **EXPANDED),
    _along("sum_rows", "torch.sum(data, dim)", "np.sum(data, dim)", **EXPANDED),
    _along("sum_cols", "torch.sum(data, dim)", "np.sum(data, dim)", dim=0, **EXPANDED),
    _all("sum_channels", "torch.sum(data, (0, 2, 3))", "np.sum(data, (0, 2, 3))", images(), **EXPANDED),
    _all("sum_to_size", "data.sum_to_size(1, data.shape[1])", "np.sum(data, 0, keepdims=True)", **EXPANDED),
    _all("sum_int64", "torch.sum(data)", "np.sum(data)", square(integers(100), "int64"), **NO_GRADIENT),
    _along("nansum", "torch.nansum(data, dim)", "np.nansum(data, dim)", square(SOME_NAN)),
    _all("prod", "torch.prod(data)", "np.prod(data)", square(signs)),
    _along("prod_rows", "torch.prod(data, dim)", "np.prod(data, dim)", square(AROUND_ONE), **WIDE),
    _all("mean", "torch.mean(data)", "np.mean(data)", square(uniform(0.0, 2.0)), **UNREAD, **NOT_HALF),
    _along("mean_rows", "torch.mean(data, dim)", "np.mean(data, dim)", **UNREAD),
    _along("mean_cols", "torch.mean(data, dim)", "np.mean(data, dim)", dim=0, **UNREAD),
    _all("mean_spatial", "torch.mean(data, (2, 3))", "np.mean(data, (2, 3))", images(), **UNREAD),
    _along("nanmean", "torch.nanmean(data, dim)", "np.nanmean(data, dim)", square(SOME_NAN)),
    # spread
    _all("std", "torch.std(data)", "np.std(data, ddof=1)", flops=per_input("data", 3), **NOT_HALF),
    _along("std_rows", "torch.std(data, dim)", "np.std(data, dim, ddof=1)", flops=per_input("data", 3)),
    _all("var", "torch.var(data)", "np.var(data, ddof=1)", flops=per_input("data", 3), **NOT_HALF),
    _along("var_rows", "torch.var(data, dim)", "np.var(data, dim, ddof=1)", flops=per_input("data", 3)),
    _along("var_cols", "torch.var(data, dim)", "np.var(data, dim, ddof=1)", dim=0, flops=per_input("data", 3)),
    _along(
        "std_mean",
        "torch.std_mean(data, dim)",
        "(np.std(data, dim, ddof=1), np.mean(data, dim))",
        flops=per_input("data", 3),
    ),
    _along(
        "var_mean",
        "torch.var_mean(data, dim)",
        "(np.var(data, dim, ddof=1), np.mean(data, dim))",
        flops=per_input("data", 3),
    ),
    _all("cov", "torch.cov(data)", "np.cov(data)", _MATRIX, flops=_correlation_flops),
    _all("corrcoef", "torch.corrcoef(data)", "np.corrcoef(data)", _MATRIX, flops=_correlation_flops),
    # norms
    # over 16 million float32 values torch's norm was seen 6.5e-4 off
    _all("norm", "torch.norm(data)", "np.linalg.norm(data)", flops=per_input("data", 2), tolerance=5.0),
    _along(
        "norm_rows",
        "torch.norm(data, p, dim)",
        "np.linalg.norm(data, p, dim)",
        square(cells(-3, 3)),
        attributes={"p": 1},
        flops=per_input("data", 2),
    ),
    _all(
        "renorm",
        "torch.renorm(data, p, dim, maxnorm)",
        "ref.renorm(data, p, dim, maxnorm)",
        attributes=lambda shapes: {"p": 2, "dim": 0, "maxnorm": math.sqrt(shapes["data"][1])},
        flops=per_input("data", 3),
    ),
    _all("dist", "torch.dist(lhs, rhs)", "np.linalg.norm(lhs - rhs)", _PAIR, flops=per_input("lhs", 3), tolerance=5.0),
    _along(
        "logsumexp",
        "torch.logsumexp(data, dim)",
        "special.logsumexp(data, axis=dim)",
        flops=per_input("data", 3),
    ),
    # extremes
    _all("max", "torch.max(data)", "np.max(data)", square(lone_extremes)),
    _along("max_rows", "torch.max(data, dim)", "(np.max(data, dim), np.argmax(data, dim))", square(distinct)),
    _along(
        "max_cols",
        "torch.max(data, dim)",
        "(np.max(data, dim), np.argmax(data, dim))",
        square(SPACED_COLUMNS),
        dim=0,
        **WIDE,
    ),
    _all("min", "torch.min(data)", "np.min(data)", square(lone_extremes)),
    _along("min_rows", "torch.min(data, dim)", "(np.min(data, dim), np.argmin(data, dim))", square(distinct)),
    _all("amax", "torch.amax(data)", "np.max(data)", square(lone_extremes)),
    _along("amax_rows", "torch.amax(data, dim)", "np.max(data, dim)", square(distinct)),
    _all("amin", "torch.amin(data)", "np.min(data)", square(lone_extremes)),
    _along("amin_rows", "torch.amin(data, dim)", "np.min(data, dim)", square(distinct)),
    _all("aminmax", "torch.aminmax(data)", "(np.min(data), np.max(data))", square(lone_extremes)),
    _along("aminmax_rows", "torch.aminmax(data, dim=dim)", "(np.min(data, dim), np.max(data, dim))", square(distinct)),
    _all("argmax", "torch.argmax(data)", "np.argmax(data)", square(lone_extremes), **NO_GRADIENT),
    _along("argmax_rows", "torch.argmax(data, dim)", "np.argmax(data, dim)", checked=POINTED_AT, **NO_GRADIENT),
    _all("argmin", "torch.argmin(data)", "np.argmin(data)", square(lone_extremes), **NO_GRADIENT),
    _along("argmin_rows", "torch.argmin(data, dim)", "np.argmin(data, dim)", checked=POINTED_AT, **NO_GRADIENT),
    # order statistics
    _all("median", "torch.median(data)", "np.sort(data)[(len(data) - 1) // 2]", vector(spaced), **WIDE),
    _along("median_rows", "torch.median(data, dim)", "ref.median(data, dim)", table()),
    _along("nanmedian", "torch.nanmedian(data, dim)", "ref.median(data, dim)", table(DISTINCT_OR_NAN)),
    _along(
        "mode",
        "torch.mode(data, dim)",
        "ref.mode(data, dim)",
        table(integers(32), "int64"),
        checked=f"(out[0], {POINTED_AT})",
        **NO_GRADIENT,
    ),
    _along(
        "quantile",
        "torch.quantile(data, q, dim)",
        "np.quantile(data, q, dim)",
        table(),
        attributes={"q": 0.7},
        **WIDE,
    ),
    _along(
        "nanquantile",
        "torch.nanquantile(data, q, dim)",
        "np.nanquantile(data, q, dim)",
        table(DISTINCT_OR_NAN),
        attributes={"q": 0.7},
        **WIDE,
    ),
    # truth values and counts
    _all("any", "torch.any(data)", "np.any(data)", square(constant(0.0), "bool"), **NO_GRADIENT),
    _along("any_rows", "torch.any(data, dim)", "np.any(data, dim)", square(RARELY_TRUE, "bool"), **NO_GRADIENT),
    _all("all", "torch.all(data)", "np.all(data)", square(constant(1.0), "bool"), **NO_GRADIENT),
    _along("all_rows", "torch.all(data, dim)", "np.all(data, dim)", square(RARELY_FALSE, "bool"), **NO_GRADIENT),
    _all("count_nonzero", "torch.count_nonzero(data)", "np.count_nonzero(data)", square(half_zero), **NO_GRADIENT),
    _along(
        "count_nonzero_rows",
        "torch.count_nonzero(data, dim)",
        "np.count_nonzero(data, dim)",
        square(half_zero),
        **NO_GRADIENT,
    ),
    _all("sum_bool", "torch.sum(data)", "np.sum(data)", square(booleans, "bool"), **NO_GRADIENT),
    _all("bincount", "torch.bincount(data)", "np.bincount(data)", _COUNTED, **NO_GRADIENT),
    _all("bincount_weighted", "torch.bincount(data, weights)", "np.bincount(data, weights)", _WEIGHTED, **NO_GRADIENT),
    _all(
        "histc",
        "torch.histc(data, bins, low, high)",
        "np.histogram(data, bins, (low, high))[0]",
        attributes={"bins": 64, "low": -4.0, "high": 4.0},
        **WIDE,
        **NO_GRADIENT,
    ),
    _all(
        "histogram",
        "torch.histogram(data, bins, range=(low, high))",
        "np.histogram(data, bins, (low, high))",
        vector(),
        attributes={"bins": 64, "low": -4.0, "high": 4.0},
        **WIDE,
        **NO_GRADIENT,
    ),
    _all(
        "histogramdd",
        "torch.histogramdd(data, [bins] * 3, range=[low, high] * 3)",
        "np.histogramdd(data, [bins] * 3, [(low, high)] * 3)",
        _POINTS,
        attributes={"bins": 16, "low": -4.0, "high": 4.0},
        **WIDE,
        **NO_GRADIENT,
    ),
    # running ones
    _along("cumsum", "torch.cumsum(data, dim)", "np.cumsum(data, dim)", **UNREAD),
    _along("cumsum_cols", "torch.cumsum(data, dim)", "np.cumsum(data, dim)", dim=0, **UNREAD),
    _along("cumprod", "torch.cumprod(data, dim)", "np.cumprod(data, dim)", square(AROUND_ONE), **WIDE),
    _along("cummax", "torch.cummax(data, dim)", "ref.cummax(data, dim)", square(distinct)),
    _along("cummin", "torch.cummin(data, dim)", "ref.cummin(data, dim)", square(distinct)),
    _along(
        "logcumsumexp",
        "torch.logcumsumexp(data, dim)",
        "np.logaddexp.accumulate(data, dim)",
        flops=per_input("data", 4),
    ),
    _along("diff", "torch.diff(data, dim=dim)", "np.diff(data, axis=dim)", **UNREAD),
    _along("trapezoid", "torch.trapezoid(data, dim=dim)", "scipy.integrate.trapezoid(data, axis=dim)", **UNREAD),
    _along(
        "cumulative_trapezoid",
        "torch.cumulative_trapezoid(data, dim=dim)",
        "scipy.integrate.cumulative_trapezoid(data, axis=dim)",
        flops=per_input("data", 3),
        **UNREAD,
    ),
)
