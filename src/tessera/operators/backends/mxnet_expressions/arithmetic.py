"""Arithmetic, comparisons and logic, also in place."""

from __future__ import annotations

_RELATIONS = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}
# NDArrays answer a comparison in their own dtype, which is what a comparison in place does
_RELATIONS_IN_PLACE = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "lesser",
    "le": "lesser_equal",
    "gt": "greater",
    "ge": "greater_equal",
}
_BITS = ("bitwise_and", "bitwise_or", "bitwise_xor")
_INVERSIONS = ("logical_not", "bitwise_not")

EXPRESSIONS = {
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
    **{name: f"mnp.{relation}(lhs, rhs)" for name, relation in _RELATIONS.items()},
    **{f"{name}_scalar": f"mnp.{relation}(data, other)" for name, relation in _RELATIONS.items()},
    **{f"inplace_{name}": f"nd.broadcast_{last}(lhs, rhs, out=lhs)" for name, last in _RELATIONS_IN_PLACE.items()},
    **{name: f"mnp.{name}(data)" for name in ("isnan", "isinf", "isfinite", "isposinf", "isneginf")},
    # logic: of truth values MXNet has only the inversion
    **{name: f"mnp.{name}(lhs, rhs)" for name in _BITS},
    **{f"inplace_{name}": f"mnp.{name}(lhs, rhs, out=lhs)" for name in _BITS},
    **{name: f"mnp.{name}(data)" for name in _INVERSIONS},
    **{f"inplace_{name}": f"mnp.{name}(data, out=data)" for name in _INVERSIONS},
    **{f"{name}_scalar": f"mnp.{name}(data, other)" for name in _BITS},
}
