"""Elementwise functions in JAX: comparisons, logic, powers, exponentials, circles, rounding, special functions."""

from __future__ import annotations

from collections.abc import Iterable


def unary(module: str, names: Iterable[str], prefix: str = "") -> dict[str, str]:
    """Functions of `data` that JAX has under the names of torch, `prefix` apart.

    >>> unary("jnp", ["sin"])
    {'sin': 'jnp.sin(data)'}
    """
    return {f"{prefix}{name}": f"{module}.{name}(data)" for name in names}


def binary(module: str, names: Iterable[str], prefix: str = "") -> dict[str, str]:
    """Functions of `lhs` and `rhs` that JAX has under the names of torch, `prefix` apart."""
    return {f"{prefix}{name}": f"{module}.{name}(lhs, rhs)" for name in names}


RELATIONS = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}
COMPARISON = {
    **{name: f"jnp.{ours}(lhs, rhs)" for name, ours in RELATIONS.items()},
    **{f"{name}_scalar": f"jnp.{ours}(data, other)" for name, ours in RELATIONS.items()},
    **binary("jnp", ("isclose", "allclose")),
    **unary("jnp", ("isnan", "isinf", "isfinite", "isposinf", "isneginf", "signbit", "isreal")),
    "equal": "jnp.array_equal(lhs, rhs)",
    "isin": "jnp.isin(data, test_elements)",
}
LOGICAL = {
    **binary("jnp", ("logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor")),
    **unary("jnp", ("logical_not", "bitwise_not")),
    **{f"bitwise_{name}_scalar": f"jnp.bitwise_{name}(data, other)" for name in ("and", "or", "xor")},
    **{f"bitwise_{side}_shift": f"jnp.{side}_shift(lhs, rhs)" for side in ("left", "right")},
    **{f"bitwise_{side}_shift_scalar": f"jnp.{side}_shift(data, other)" for side in ("left", "right")},
}
POWERS = {
    **unary("jnp", ("square", "sqrt")),
    "rsqrt": "lax.rsqrt(data)",
    "power": "jnp.power(lhs, rhs)",
    "pow_scalar": "jnp.power(data, exponent)",
    "pow_scalar_base": "jnp.power(base, data)",
}
TRIGONOMETRIC = {
    **unary("jnp", ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh")),
    **unary("jnp", ("sinc", "deg2rad", "rad2deg")),
    "atan2": "jnp.atan2(lhs, rhs)",
}
ROUNDING = {
    **unary("jnp", ("floor", "ceil", "trunc", "round")),
    "round_decimals": "jnp.round(data, decimals)",
    "frac": "jnp.fmod(data, 1)",
}
EXPONENTIAL = {
    **unary("jnp", ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p")),
    **binary("jnp", ("logaddexp", "logaddexp2")),
    **unary("jax.scipy.special", ("logit", "erf", "erfc", "erfinv", "digamma")),
    **unary("jax.scipy.special", ("entr", "erfcx", "ndtr", "ndtri", "log_ndtr", "i0", "i0e", "i1", "i1e"), "special_"),
    **binary("jax.scipy.special", ("xlog1py", "gammainc", "gammaincc", "zeta"), "special_"),
    "xlogy": "jax.scipy.special.xlogy(lhs, rhs)",
    "lgamma": "jax.scipy.special.gammaln(data)",
    "polygamma": "jax.scipy.special.polygamma(n, data)",
    "mvlgamma": "jax.scipy.special.multigammaln(data, p)",
    "special_modified_bessel_i0": "jax.scipy.special.i0(data)",
    "special_modified_bessel_i1": "jax.scipy.special.i1(data)",
    "special_spherical_bessel_j0": "jnp.sinc(data / jnp.pi)",
}

EXPRESSIONS = COMPARISON | LOGICAL | POWERS | TRIGONOMETRIC | ROUNDING | EXPONENTIAL
