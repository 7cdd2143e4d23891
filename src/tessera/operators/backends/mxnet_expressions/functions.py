"""MXNet expressions of elementwise operators, also in place, and of reductions, sorting and searching."""

from __future__ import annotations

from tessera.operators.catalogue.comparison import COMPARISON_NAMES

# operators that have the same name in the catalogue and in MXNet
_SAME_NAME_FUNCTIONS = (
    *("negative", "abs", "sign", "reciprocal", "exp", "expm1", "log", "log2", "log10", "log1p"),
    *("square", "sqrt", "rsqrt", "floor", "ceil", "trunc", "sin", "cos", "tan", "sinh", "cosh", "tanh"),
    *("erf", "erfinv", "relu", "sigmoid", "softsign"),
)
# name in the catalogue -> name in MXNet
_RENAMED_FUNCTIONS = {
    **{name: f"arc{name[1:]}" for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")},
    "deg2rad": "radians",
    "rad2deg": "degrees",
    "lgamma": "gammaln",
}

_ELEMENTWISE_EXPRESSIONS = {
    **{name: f"nd.{name}(data)" for name in _SAME_NAME_FUNCTIONS},
    **{name: f"nd.{other}(data)" for name, other in _RENAMED_FUNCTIONS.items()},
    **{name: f"nd.{name}(lhs, rhs)" for name in ("add", "subtract", "multiply", "divide", "modulo", "power")},
    **{f"{name}_scalar": f"nd.{name}(data, other)" for name in ("add", "subtract", "multiply", "divide", "modulo")},
    **{f"broadcast_{name}": f"nd.broadcast_{name[:3]}(lhs, rhs)" for name in ("add", "subtract", "multiply", "divide")},
    "rsub": "nd.subtract(other, data)",
    "hypot": "nd.broadcast_hypot(lhs, rhs)",
    "maximum": "nd.maximum(lhs, rhs)",
    "minimum": "nd.minimum(lhs, rhs)",
    "clamp": "nd.clip(data, min, max)",
    "clamp_min": "nd.maximum(data, min)",
    "clamp_max": "nd.minimum(data, max)",
    "pow_scalar": "nd.power(data, exponent)",
    "pow_scalar_base": "nd.power(base, data)",
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
}

# functions that take their first input as `out`, and Python's in-place operators
_IN_PLACE_FUNCTIONS = (
    *("negative", "abs", "sign", "reciprocal", "clamp", "expm1", "log1p", "square", "sqrt", "rsqrt", "floor", "ceil"),
    *("trunc", "sin", "cos", "tanh", "erf", "relu", "sigmoid", "atan", "asinh"),
    *("relu6", "hardtanh", "hardsigmoid", "leaky_relu", "elu", "selu"),
)
_IN_PLACE_METHODS = {"add": "iadd", "subtract": "isub", "multiply": "imul"}

_IN_PLACE_EXPRESSIONS = {
    **{f"inplace_{name}": f"{_ELEMENTWISE_EXPRESSIONS[name][:-1]}, out=data)" for name in _IN_PLACE_FUNCTIONS},
    **{f"inplace_{name}": f"lhs.__{method}__(rhs)" for name, method in _IN_PLACE_METHODS.items()},
    **{f"inplace_{name}_scalar": f"data.__{method}__(other)" for name, method in _IN_PLACE_METHODS.items()},
    "inplace_division": "lhs.__itruediv__(rhs)",
    "inplace_divide_scalar": "data.__itruediv__(other)",
    "inplace_modulo": "lhs.__imod__(rhs)",
    "inplace_hypot": "nd.broadcast_hypot(lhs, rhs, out=lhs)",
    "inplace_power": "nd.broadcast_power(lhs, rhs, out=lhs)",
    # NDArray functions, because they return a comparison in the dtype of the inputs, as an in-place comparison does
    **{
        f"inplace_{name}": f"nd.broadcast_{numpy.replace('less', 'lesser')}(lhs, rhs, out=lhs)"
        for name, (numpy, _) in COMPARISON_NAMES.items()
    },
}

# reductions of rows or columns -> name in nd
_DIM_REDUCTIONS = {
    **{f"{name}_rows": name for name in ("sum", "prod", "mean")},
    "nansum": "nansum",
    "amax_rows": "max",
    "amin_rows": "min",
}
# sorted values and their indices; k=0 selects all values
_SORT_TEMPLATE = "nd.topk(data, axis=dim, k=0, ret_typ='both', is_ascend={}, dtype='int64')"

_REDUCTION_EXPRESSIONS = {
    **{name: f"nd.{call}(data, axis=dim)" for name, call in _DIM_REDUCTIONS.items()},
    **{f"{name}_rows": f"mnp.{name}(data, axis=dim)" for name in ("argmax", "argmin", "any", "all")},
    "sum_channels": "nd.sum(data, axis=(0, 2, 3))",
    "mean_spatial": "nd.mean(data, axis=(2, 3))",
    "std_rows": "mnp.std(data, axis=dim, ddof=1)",
    "var_rows": "mnp.var(data, axis=dim, ddof=1)",
    "norm_rows": "nd.norm(data, ord=p, axis=dim)",
    "quantile": "mnp.quantile(data, q, axis=dim)",
    "histc": "mnp.histogram(data, bins=bins, range=(low, high))[0]",
    "histogram": "mnp.histogram(data, bins=bins, range=(low, high))",
    "cumsum": "mnp.cumsum(data, axis=dim % len(shapes['data']))",
    "cumsum_cols": "mnp.cumsum(data, axis=dim)",
    # sorting
    "sort": _SORT_TEMPLATE.format(True),
    "sort_descending": _SORT_TEMPLATE.format(False),
    "msort": "nd.sort(data, axis=0)",
    "argsort": "nd.argsort(data, axis=dim, dtype='int64')",
    "topk": "nd.topk(data, axis=dim, k=k, ret_typ='both', dtype='int64')",
}

EXPRESSIONS = _ELEMENTWISE_EXPRESSIONS | _IN_PLACE_EXPRESSIONS | _REDUCTION_EXPRESSIONS
