"""Arithmetic that overwrites its first input.

A benchmark calls them over and over on one buffer. Sums grow until what is added no longer counts; products and
quotients are with one and minus one; remainders, bounds and the like give the same again.
"""

from __future__ import annotations

from functools import partial

from tessera.operators.catalogue.elementwise import (
    NO_FLOPS,
    SLOW_SIDES,
    inplace,
    inplace_binary,
    inplace_unary,
    value,
)
from tessera.operators.draws import cells, integers, normal, not_all_finite, signs, uniform
from tessera.operators.operator import Operator
from tessera.operators.work import per_output

_unary = partial(inplace_unary, "arithmetic")
_binary = partial(inplace_binary, "arithmetic")
_inplace = partial(inplace, "arithmetic")

DIVIDEND, DIVISOR = cells(-6, 6, 0.2, 0.8), integers(5, low=1)
PARTS = {"data": value(), "first": value(), "second": value(signs)}


def _with_scalar(name: str, method: str, numpy: str, other: float) -> Operator:
    """An operator on `data` and one number, `other`."""
    return _unary(
        name,
        torch=f"data.{method}(other)",
        reference=f"np.{numpy}(data, other, out=data)",
        attributes={"other": other},
        aliases=(),
    )


OPERATORS = (
    _binary("add"),
    _binary("subtract", torch="lhs.sub_(rhs)", aliases=("subtract_", "sub_")),
    _binary("multiply", normal, signs, torch="lhs.mul_(rhs)", aliases=("multiply_", "mul_")),
    _binary(
        "division",
        normal,
        signs,
        torch="lhs.div_(rhs)",
        reference="np.divide(lhs, rhs, out=lhs)",
        aliases=("divide_", "div_"),
    ),
    _binary(
        "modulo",
        DIVIDEND,
        DIVISOR,
        torch="lhs.remainder_(rhs)",
        reference="np.remainder(lhs, rhs, out=lhs)",
        aliases=("remainder_",),
    ),
    _binary("fmod", DIVIDEND, DIVISOR),
    _binary("floor_divide", DIVIDEND, signs),
    _binary("hypot", flops=per_output(4)),
    _binary("copysign"),
    _with_scalar("add_scalar", "add_", "add", 0.5),
    _with_scalar("subtract_scalar", "sub_", "subtract", 0.5),
    _with_scalar("multiply_scalar", "mul_", "multiply", -1.0),
    _with_scalar("divide_scalar", "div_", "divide", -1.0),
    _unary("negative", torch="data.neg_()", aliases=("negative_", "neg_")),
    _unary("abs"),
    _unary("sign"),
    _unary("reciprocal", uniform(0.5, 2.0)),
    _unary(
        "nan_to_num",
        not_all_finite,
        torch="data.nan_to_num_(nan, posinf, neginf)",
        reference="np.nan_to_num(data, copy=False, nan=nan, posinf=posinf, neginf=neginf)",
        attributes={"nan": 0.0, "posinf": 10.0, "neginf": -10.0},
    ),
    _unary(
        "clamp",
        torch="data.clamp_(min, max)",
        reference="np.clip(data, min, max, out=data)",
        attributes={"min": -1.0, "max": 1.0},
        aliases=("clamp_", "clip_"),
    ),
    _unary(
        "clamp_min",
        torch="data.clamp_min_(min)",
        reference="np.maximum(data, min, out=data)",
        attributes={"min": -1.0},
    ),
    _unary(
        "clamp_max",
        torch="data.clamp_max_(max)",
        reference="np.minimum(data, max, out=data)",
        attributes={"max": 1.0},
    ),
    _inplace(
        "addcmul",
        "data.addcmul_(first, second, value=value)",
        "ref.addcmul(data, first, second, value)",
        inputs=PARTS,
        attributes={"value": 0.5},
        flops=per_output(3),
    ),
    _inplace(
        "addcdiv",
        "data.addcdiv_(first, second, value=value)",
        "ref.addcdiv(data, first, second, value)",
        inputs=PARTS,
        attributes={"value": 0.5},
        flops=per_output(3),
    ),
    _inplace(
        "lerp",
        "lhs.lerp_(rhs, weight)",
        "ref.lerp(lhs, rhs, weight)",
        inputs={"lhs": value(), "rhs": value(), "weight": value(uniform(0.0, 1.0))},
        flops=per_output(3),
    ),
    _binary("gcd", integers(1000, low=1), integers(1000, low=1), kind="int32", sides=SLOW_SIDES, **NO_FLOPS),
    _binary("lcm", integers(1000, low=1), integers(1000, low=1), kind="int32", sides=SLOW_SIDES, **NO_FLOPS),
)
