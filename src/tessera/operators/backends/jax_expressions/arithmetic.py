"""Arithmetic in JAX."""

from __future__ import annotations

EXPRESSIONS = {
    **{
        name: f"jnp.{name}(lhs, rhs)"
        for name in (
            "add",
            "subtract",
            "multiply",
            "divide",
            "floor_divide",
            "fmod",
            "hypot",
            "maximum",
            "minimum",
            "fmax",
            "fmin",
            "ldexp",
            "nextafter",
            "copysign",
            "heaviside",
            "gcd",
            "lcm",
        )
    },
    **{f"broadcast_{name}": f"jnp.{name}(lhs, rhs)" for name in ("add", "subtract", "multiply", "divide")},
    **{name: f"jnp.{name}(data)" for name in ("negative", "positive", "abs", "sign", "reciprocal", "frexp")},
    "modulo": "jnp.remainder(lhs, rhs)",
    "divide_floor": "jnp.floor_divide(lhs, rhs)",
    "divide_trunc": "jnp.trunc(lhs / rhs)",
    "nan_to_num": "jnp.nan_to_num(data, nan=nan, posinf=posinf, neginf=neginf)",
    # with one number
    "add_scalar": "jnp.add(data, other)",
    "subtract_scalar": "jnp.subtract(data, other)",
    "rsub": "jnp.subtract(other, data)",
    "multiply_scalar": "jnp.multiply(data, other)",
    "divide_scalar": "jnp.divide(data, other)",
    "modulo_scalar": "jnp.remainder(data, other)",
    "fmod_scalar": "jnp.fmod(data, other)",
    "floor_divide_scalar": "jnp.floor_divide(data, other)",
    "copysign_scalar": "jnp.copysign(data, other)",
    # of several
    "addcmul": "data + value * first * second",
    "addcdiv": "data + value * first / second",
    "lerp": "lhs + weight * (rhs - lhs)",
    "lerp_scalar": "lhs + weight * (rhs - lhs)",
    "clamp": "jnp.clip(data, min, max)",
    "clamp_min": "jnp.maximum(data, min)",
    "clamp_max": "jnp.minimum(data, max)",
    "clamp_tensor": "jnp.clip(data, lower, upper)",
}
