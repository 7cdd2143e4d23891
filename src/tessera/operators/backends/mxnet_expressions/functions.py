"""Functions of one element: exponentials, powers, rounding, trigonometric and special functions, activations."""

from __future__ import annotations

# called alike in the catalogue and in MXNet
_ALIKE = (
    *("exp", "expm1", "log", "log2", "log10", "log1p"),
    *("square", "sqrt", "rsqrt"),
    *("floor", "ceil", "trunc"),
    *("sin", "cos", "tan", "sinh", "cosh", "tanh"),
    *("erf", "erfinv"),
    *("relu", "sigmoid", "softsign"),
)
# the catalogue's name -> MXNet's
_OTHERWISE = {
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
_IN_PLACE = (
    *("expm1", "log1p", "square", "sqrt", "rsqrt", "floor", "ceil", "trunc"),
    *("sin", "cos", "tanh", "erf", "relu", "sigmoid"),
)

EXPRESSIONS = {
    **{name: f"nd.{name}(data)" for name in _ALIKE},
    **{name: f"nd.{other}(data)" for name, other in _OTHERWISE.items()},
    **{f"inplace_{name}": f"nd.{name}(data, out=data)" for name in _IN_PLACE},
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
