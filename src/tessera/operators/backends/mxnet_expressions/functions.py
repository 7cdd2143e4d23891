"""MXNet expressions of elementwise operators, also in place, and of reductions, sorting and searching."""

from __future__ import annotations

_COMPARISON_NAMES = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}
# NDArray functions, because they return a comparison in the dtype of the inputs, as an in-place comparison does
_IN_PLACE_COMPARISON_NAMES = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "lesser",
    "le": "lesser_equal",
    "gt": "greater",
    "ge": "greater_equal",
}
_BITWISE_NAMES = ("bitwise_and", "bitwise_or", "bitwise_xor")
_NEGATION_NAMES = ("logical_not", "bitwise_not")

ARITHMETIC_EXPRESSIONS = {
    "add": "nd.add(lhs, rhs)",
    "subtract": "nd.subtract(lhs, rhs)",
    "multiply": "nd.multiply(lhs, rhs)",
    "divide": "nd.divide(lhs, rhs)",
    "modulo": "nd.modulo(lhs, rhs)",
    "broadcast_add": "nd.broadcast_add(lhs, rhs)",
    "broadcast_subtract": "nd.broadcast_sub(lhs, rhs)",
    "broadcast_multiply": "nd.broadcast_mul(lhs, rhs)",
    "broadcast_divide": "nd.broadcast_div(lhs, rhs)",
    "add_scalar": "nd.add(data, other)",
    "subtract_scalar": "nd.subtract(data, other)",
    "rsub": "nd.subtract(other, data)",
    "multiply_scalar": "nd.multiply(data, other)",
    "divide_scalar": "nd.divide(data, other)",
    "modulo_scalar": "nd.modulo(data, other)",
    "copysign_scalar": "mnp.copysign(data, other)",
    "negative": "nd.negative(data)",
    "abs": "nd.abs(data)",
    "sign": "nd.sign(data)",
    "reciprocal": "nd.reciprocal(data)",
    "nan_to_num": "mnp.nan_to_num(data, nan=nan, posinf=posinf, neginf=neginf)",
    "hypot": "nd.broadcast_hypot(lhs, rhs)",
    "maximum": "nd.maximum(lhs, rhs)",
    "minimum": "nd.minimum(lhs, rhs)",
    "clamp": "nd.clip(data, min, max)",
    "clamp_min": "nd.maximum(data, min)",
    "clamp_max": "nd.minimum(data, max)",
    "copysign": "mnp.copysign(lhs, rhs)",
    "lcm": "mnp.lcm(lhs, rhs)",
    # in place
    "inplace_add": "lhs.__iadd__(rhs)",
    "inplace_subtract": "lhs.__isub__(rhs)",
    "inplace_multiply": "lhs.__imul__(rhs)",
    "inplace_division": "lhs.__itruediv__(rhs)",
    "inplace_modulo": "lhs.__imod__(rhs)",
    "inplace_hypot": "nd.broadcast_hypot(lhs, rhs, out=lhs)",
    "inplace_copysign": "mnp.copysign(lhs, rhs, out=lhs)",
    "inplace_add_scalar": "data.__iadd__(other)",
    "inplace_subtract_scalar": "data.__isub__(other)",
    "inplace_multiply_scalar": "data.__imul__(other)",
    "inplace_divide_scalar": "data.__itruediv__(other)",
    "inplace_negative": "nd.negative(data, out=data)",
    "inplace_abs": "nd.abs(data, out=data)",
    "inplace_sign": "nd.sign(data, out=data)",
    "inplace_reciprocal": "nd.reciprocal(data, out=data)",
    "inplace_nan_to_num": "mnp.nan_to_num(data, copy=False, nan=nan, posinf=posinf, neginf=neginf)",
    "inplace_clamp": "nd.clip(data, min, max, out=data)",
    "inplace_clamp_min": "mnp.maximum(data, min, out=data)",
    "inplace_clamp_max": "mnp.minimum(data, max, out=data)",
    "inplace_lcm": "mnp.lcm(lhs, rhs, out=lhs)",
    # comparisons
    **{name: f"mnp.{relation}(lhs, rhs)" for name, relation in _COMPARISON_NAMES.items()},
    **{f"{name}_scalar": f"mnp.{relation}(data, other)" for name, relation in _COMPARISON_NAMES.items()},
    **{
        f"inplace_{name}": f"nd.broadcast_{last}(lhs, rhs, out=lhs)"
        for name, last in _IN_PLACE_COMPARISON_NAMES.items()
    },
    **{name: f"mnp.{name}(data)" for name in ("isnan", "isinf", "isfinite", "isposinf", "isneginf")},
    # logic: of the operators on booleans, MXNet has only the inversion
    **{name: f"mnp.{name}(lhs, rhs)" for name in _BITWISE_NAMES},
    **{f"inplace_{name}": f"mnp.{name}(lhs, rhs, out=lhs)" for name in _BITWISE_NAMES},
    **{name: f"mnp.{name}(data)" for name in _NEGATION_NAMES},
    **{f"inplace_{name}": f"mnp.{name}(data, out=data)" for name in _NEGATION_NAMES},
    **{f"{name}_scalar": f"mnp.{name}(data, other)" for name in _BITWISE_NAMES},
}

# operators that have the same name in the catalogue and in MXNet
_SAME_NAME_FUNCTIONS = (
    *("exp", "expm1", "log", "log2", "log10", "log1p"),
    *("square", "sqrt", "rsqrt"),
    *("floor", "ceil", "trunc"),
    *("sin", "cos", "tan", "sinh", "cosh", "tanh"),
    *("erf", "erfinv"),
    *("relu", "sigmoid", "softsign"),
)
# name in the catalogue -> name in MXNet
_RENAMED_FUNCTIONS = {
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
    "deg2rad": "radians",
    "rad2deg": "degrees",
    "lgamma": "gammaln",
}
_IN_PLACE_FUNCTIONS = (
    *("expm1", "log1p", "square", "sqrt", "rsqrt", "floor", "ceil", "trunc"),
    *("sin", "cos", "tanh", "erf", "relu", "sigmoid"),
)

FUNCTION_EXPRESSIONS = {
    **{name: f"nd.{name}(data)" for name in _SAME_NAME_FUNCTIONS},
    **{name: f"nd.{other}(data)" for name, other in _RENAMED_FUNCTIONS.items()},
    **{f"inplace_{name}": f"nd.{name}(data, out=data)" for name in _IN_PLACE_FUNCTIONS},
    "inplace_atan": "nd.arctan(data, out=data)",
    "inplace_asinh": "nd.arcsinh(data, out=data)",
    "atan2": "mnp.arctan2(lhs, rhs)",
    "inplace_atan2": "mnp.arctan2(lhs, rhs, out=lhs)",
    "power": "nd.power(lhs, rhs)",
    "pow_scalar": "nd.power(data, exponent)",
    "pow_scalar_base": "nd.power(base, data)",
    "inplace_power": "nd.broadcast_power(lhs, rhs, out=lhs)",
    "inplace_pow_scalar": "mnp.power(data, exponent, out=data)",
    # activations
    "relu6": "nd.clip(data, 0, 6)",
    "hardtanh": "nd.clip(data, min_val, max_val)",
    "hardsigmoid": "nd.hard_sigmoid(data, alpha=1 / 6, beta=0.5)",
    "leaky_relu": "nd.LeakyReLU(data, act_type='leaky', slope=negative_slope)",
    "prelu": "nd.LeakyReLU(data, gamma=weight, act_type='prelu')",
    "elu": "nd.LeakyReLU(data, act_type='elu', slope=alpha)",
    "selu": "nd.LeakyReLU(data, act_type='selu')",
    "gelu": "nd.LeakyReLU(data, act_type='gelu')",
    "softplus": "nd.Activation(data, act_type='softrelu')",
    "softmax": "nd.softmax(data, axis=dim)",
    "log_softmax": "nd.log_softmax(data, axis=dim)",
    "softmin": "nd.softmin(data, axis=dim)",
    "inplace_relu6": "nd.clip(data, 0, 6, out=data)",
    "inplace_hardtanh": "nd.clip(data, min_val, max_val, out=data)",
    "inplace_hardsigmoid": "nd.hard_sigmoid(data, alpha=1 / 6, beta=0.5, out=data)",
    "inplace_leaky_relu": "nd.LeakyReLU(data, act_type='leaky', slope=negative_slope, out=data)",
    "inplace_elu": "nd.LeakyReLU(data, act_type='elu', slope=alpha, out=data)",
    "inplace_selu": "nd.LeakyReLU(data, act_type='selu', out=data)",
}

# reductions of rows or columns -> name in nd
_DIM_REDUCTIONS = {
    "sum_rows": "sum",
    "sum_cols": "sum",
    "nansum": "nansum",
    "prod_rows": "prod",
    "mean_rows": "mean",
    "mean_cols": "mean",
    "amax_rows": "max",
    "amin_rows": "min",
}
# reductions to a scalar -> name in mnp, because nd returns an array of shape (1,)
_FULL_REDUCTIONS = {
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
# sorted values and their indices; k=0 selects all values
_SORT_TEMPLATE = "nd.topk(data, axis=dim, k=0, ret_typ='both', is_ascend={}, dtype='int64')"
_TOPK_CALL = "nd.topk(data, axis=dim, k=k, ret_typ='both', dtype='int64')"

REDUCTION_EXPRESSIONS = {
    **{name: f"nd.{call}(data, axis=dim)" for name, call in _DIM_REDUCTIONS.items()},
    **{name: f"mnp.{call}(data)" for name, call in _FULL_REDUCTIONS.items()},
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
    **{name: _SORT_TEMPLATE.format(True) for name in ("sort", "sort_cols", "sort_vector", "sort_int64", "sort_uint8")},
    "sort_descending": _SORT_TEMPLATE.format(False),
    "msort": "nd.sort(data, axis=0)",
    "argsort": "nd.argsort(data, axis=dim, dtype='int64')",
    "topk": _TOPK_CALL,
    "topk_vector": _TOPK_CALL,
    "unique": "mnp.unique(data)",
    "unique_float": "mnp.unique(data)",
    "unique_counts": "mnp.unique(data, return_inverse=True, return_counts=True)",
    "unique_rows": "mnp.unique(data, axis=0)",
}

EXPRESSIONS = ARITHMETIC_EXPRESSIONS | FUNCTION_EXPRESSIONS | REDUCTION_EXPRESSIONS
