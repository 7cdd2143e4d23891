"""Arithmetic: sums, products, quotients, remainders, clamps, and parts of floating-point numbers; in-place variants.

A benchmark calls an in-place operator repeatedly on the same buffer, and the values must stay finite: sums grow until
the addend is rounded away, factors and divisors are 1 and -1, and remainders, clamps and similar operators are
idempotent.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tessera.operators.catalogue.families import (
    LINEAR_GRADIENT,
    MATRIX_SIDES,
    NO_FLOPS,
    NO_GRADIENT,
    SAME_GRADIENT,
    SLOW_MATRIX_SIDES,
    WIDE_DTYPES,
    ZERO_GRADIENT,
    ElementwiseFamily,
    define_operator,
    make_value,
    write_both,
)
from tessera.operators.draws import Draw, between_multiples, integers, normal, not_all_finite, signs, uniform
from tessera.operators.operator import Input, Operator, count_no_bytes, make_sizes

_ARITHMETIC_FAMILY = ElementwiseFamily("arithmetic")
_define_unary, _define_binary = _ARITHMETIC_FAMILY.define_unary, _ARITHMETIC_FAMILY.define_binary
_define_unary_inplace = partial(_define_unary, inplace=True)
_define_binary_inplace = partial(_define_binary, inplace=True)

NONZERO_VALUES = uniform(0.5, 2.0)
# dividends and divisors whose quotient is never close to an integer, where remainders are discontinuous
DIVIDEND_VALUES, DIVISOR_VALUES = between_multiples(-6, 6, 0.2, 0.8), integers(5, low=1)
# two inputs that are never close to each other: their maximum is not differentiable where they are equal
LOW_FRACTIONS, HIGH_FRACTIONS = between_multiples(-3, 3, 0.1, 0.4), between_multiples(-3, 3, 0.6, 0.9)
# avoids zero and the bounds of clamps, where the operators are not differentiable
BETWEEN_INTEGERS = between_multiples(-3, 3)
POSITIVE_INTEGERS = {
    "lhs": integers(1000, low=1),
    "rhs": integers(1000, low=1),
    "kind": "int32",
    "sides": SLOW_MATRIX_SIDES,
    **NO_FLOPS,
}
NONFINITE_REPLACEMENTS = {"nan": 0.0, "posinf": 10.0, "neginf": -10.0}
LERP_INPUTS = {"lhs": make_value(), "rhs": make_value(), "weight": make_value(uniform(0.0, 1.0))}


def _make_parts(second: Draw) -> dict[str, Input]:
    return {"data": make_value(), "first": make_value(), "second": make_value(second)}


def _define_scalar(name: str, other: float, draw: Draw = normal, **settings: Any) -> Operator:
    """Define an operator on a tensor `data` and a number `other`; `name` is the name of the NumPy function."""
    return _define_unary(f"{name}_scalar", draw, attributes={"other": other}, **{"function": name, **settings})


def _define_broadcast(name: str, torch: str, rhs: Draw, **costs: Any) -> Operator:
    """Define a binary operator on a matrix and a broadcast row; its backward pass sums over the rows."""
    return define_operator(
        "arithmetic",
        f"broadcast_{name}",
        f"torch.{torch}(lhs, rhs)",
        f"np.{name}(lhs, rhs)",
        make_sizes(lambda n: {"lhs": Input((n, n)), "rhs": Input((n,), rhs)}, *MATRIX_SIDES),
        flops=1,
        **costs,
    )


_OUT_OF_PLACE_OPERATORS = (
    _define_binary("add", **SAME_GRADIENT),
    _define_binary("subtract", aliases=("sub",), backward_flops=1.0, backward_bytes=2 / 3),
    _define_binary("multiply", aliases=("mul",)),
    _define_binary("divide", rhs=NONZERO_VALUES, aliases=("div", "true_divide"), backward_flops=4.0),
    _define_binary(
        "divide_floor",
        DIVIDEND_VALUES,
        DIVISOR_VALUES,
        torch="torch.div(lhs, rhs, rounding_mode='floor')",
        reference="np.floor_divide",
        **ZERO_GRADIENT,
    ),
    _define_binary(
        "divide_trunc",
        DIVIDEND_VALUES,
        DIVISOR_VALUES,
        torch="torch.div(lhs, rhs, rounding_mode='trunc')",
        reference="np.trunc(lhs / rhs)",
        **ZERO_GRADIENT,
    ),
    _define_binary("floor_divide", DIVIDEND_VALUES, DIVISOR_VALUES, **NO_GRADIENT),
    _define_binary("modulo", DIVIDEND_VALUES, DIVISOR_VALUES, function="remainder", aliases=("remainder",)),
    _define_binary("fmod", DIVIDEND_VALUES, DIVISOR_VALUES),
    _define_broadcast("add", "add", normal, backward_flops=1.0, backward_bytes=0.5),
    _define_broadcast("subtract", "sub", normal, backward_flops=1.0, backward_bytes=0.5),
    _define_broadcast("multiply", "mul", normal, backward_flops=3.0, backward_bytes=1.5),
    _define_broadcast("divide", "div", NONZERO_VALUES, backward_flops=4.0, backward_bytes=1.5),
    # with a scalar
    _define_scalar("add", 2.5, **SAME_GRADIENT),
    _define_scalar("subtract", 2.5, torch="torch.sub", **SAME_GRADIENT),
    _define_unary("rsub", reference="np.subtract(other, data)", attributes={"other": 2.5}, **LINEAR_GRADIENT),
    _define_scalar("multiply", 2.5, torch="torch.mul", **LINEAR_GRADIENT),
    _define_scalar("divide", 2.5, torch="torch.div", **LINEAR_GRADIENT),
    _define_scalar("modulo", 3.0, DIVIDEND_VALUES, function="remainder", **SAME_GRADIENT),
    _define_scalar("fmod", 3.0, DIVIDEND_VALUES, **SAME_GRADIENT),
    _define_scalar("floor_divide", 3.0, DIVIDEND_VALUES, **NO_GRADIENT),
    _define_scalar("copysign", -1.0, BETWEEN_INTEGERS),
    # unary operators
    _define_unary("negative", torch="torch.neg", aliases=("neg",), **LINEAR_GRADIENT),
    _define_unary("positive", moved=count_no_bytes, flops=0, **SAME_GRADIENT),
    _define_unary("abs", BETWEEN_INTEGERS, aliases=("absolute",)),
    _define_unary("sign", BETWEEN_INTEGERS, **ZERO_GRADIENT),
    _define_unary("sgn", kind="complex", reference="np.sign", flops=5, **WIDE_DTYPES),
    _define_unary("reciprocal", NONZERO_VALUES),
    _define_unary(
        "nan_to_num",
        not_all_finite,
        torch="torch.nan_to_num(data, nan=nan, posinf=posinf, neginf=neginf)",
        reference="np.nan_to_num(data, nan=nan, posinf=posinf, neginf=neginf)",
        attributes=NONFINITE_REPLACEMENTS,
    ),
    # operators on several inputs
    *(
        _ARITHMETIC_FAMILY.define(
            name,
            f"torch.{name}(data, first, second, value=value)",
            f"ref.{name}(data, first, second, value)",
            inputs=_make_parts(NONZERO_VALUES),
            attributes={"value": 0.5},
            flops=3,
            backward_bytes=1.25,
        )
        for name in ("addcmul", "addcdiv")
    ),
    _ARITHMETIC_FAMILY.define("lerp", "torch.lerp", "ref.lerp", inputs=LERP_INPUTS, flops=3),
    _define_binary(
        "lerp_scalar", torch="torch.lerp", reference="ref.lerp", attributes={"weight": 0.3}, flops=3, backward_bytes=1.0
    ),
    _define_binary("hypot", flops=4),
    # maximum and minimum
    *(_define_binary(name, LOW_FRACTIONS, HIGH_FRACTIONS) for name in ("maximum", "minimum", "fmax", "fmin")),
    _define_unary(
        "clamp", BETWEEN_INTEGERS, reference="np.clip", attributes={"min": -1.0, "max": 1.0}, aliases=("clip",)
    ),
    _define_unary("clamp_min", BETWEEN_INTEGERS, reference="np.maximum", attributes={"min": -1.0}),
    _define_unary("clamp_max", BETWEEN_INTEGERS, reference="np.minimum", attributes={"max": 1.0}),
    _ARITHMETIC_FAMILY.define(
        "clamp_tensor",
        "torch.clamp",
        "np.clip",
        inputs={
            "data": make_value(LOW_FRACTIONS),
            "lower": make_value(between_multiples(-3, 0, 0.6, 0.9)),
            "upper": make_value(between_multiples(0, 3, 0.6, 0.9)),
        },
    ),
    # parts of floating-point numbers
    _define_unary("frexp", between_multiples(1, 8), backward_flops=2.0),
    # no negative exponents: the backward pass of PyTorch 2.13 computes powers of two as integers, so 2**-1 becomes 0
    _ARITHMETIC_FAMILY.define(
        "ldexp",
        *write_both("ldexp(lhs, rhs)"),
        inputs={"lhs": make_value(), "rhs": make_value(integers(5), "int32")},
        flops=2,
    ),
    _define_binary("nextafter"),
    _define_binary("copysign", BETWEEN_INTEGERS, BETWEEN_INTEGERS),
    _define_binary("heaviside", integers(2, low=-1), NONZERO_VALUES, **NO_GRADIENT),
    _define_binary("gcd", **POSITIVE_INTEGERS),
    _define_binary("lcm", **POSITIVE_INTEGERS),
)


_define_scalar_inplace = partial(_define_scalar, inplace=True, aliases=())

_IN_PLACE_OPERATORS = (
    _define_binary_inplace("add"),
    _define_binary_inplace("subtract", torch="torch.sub", aliases=("subtract_", "sub_")),
    _define_binary_inplace("multiply", normal, signs, torch="torch.mul", aliases=("multiply_", "mul_")),
    _define_binary_inplace(
        "division", normal, signs, torch="torch.div", reference="np.divide", aliases=("divide_", "div_")
    ),
    _define_binary_inplace("modulo", DIVIDEND_VALUES, DIVISOR_VALUES, function="remainder", aliases=("remainder_",)),
    _define_binary_inplace("fmod", DIVIDEND_VALUES, DIVISOR_VALUES),
    _define_binary_inplace("floor_divide", DIVIDEND_VALUES, signs),
    _define_binary_inplace("hypot", flops=4),
    _define_binary_inplace("copysign"),
    _define_scalar_inplace("add", 0.5),
    _define_scalar_inplace("subtract", 0.5, torch="torch.sub"),
    _define_scalar_inplace("multiply", -1.0, torch="torch.mul"),
    _define_scalar_inplace("divide", -1.0, torch="torch.div"),
    _define_unary_inplace("negative", torch="torch.neg", aliases=("negative_", "neg_")),
    _define_unary_inplace("abs"),
    _define_unary_inplace("sign"),
    _define_unary_inplace("reciprocal", NONZERO_VALUES),
    _define_unary_inplace(
        "nan_to_num",
        not_all_finite,
        reference="np.nan_to_num(data, copy=False, nan=nan, posinf=posinf, neginf=neginf)",
        attributes=NONFINITE_REPLACEMENTS,
    ),
    _define_unary_inplace(
        "clamp", reference="np.clip", attributes={"min": -1.0, "max": 1.0}, aliases=("clamp_", "clip_")
    ),
    _define_unary_inplace("clamp_min", reference="np.maximum", attributes={"min": -1.0}),
    _define_unary_inplace("clamp_max", reference="np.minimum", attributes={"max": 1.0}),
    *(
        _ARITHMETIC_FAMILY.define_inplace(
            name,
            f"data.{name}_(first, second, value=value)",
            f"ref.{name}(data, first, second, value)",
            inputs=_make_parts(signs),
            attributes={"value": 0.5},
            flops=3,
        )
        for name in ("addcmul", "addcdiv")
    ),
    _ARITHMETIC_FAMILY.define_inplace(
        "lerp", "lhs.lerp_(rhs, weight)", "ref.lerp(lhs, rhs, weight)", inputs=LERP_INPUTS, flops=3
    ),
    _define_binary_inplace("gcd", **POSITIVE_INTEGERS),
    _define_binary_inplace("lcm", **POSITIVE_INTEGERS),
)

OPERATORS = (*_OUT_OF_PLACE_OPERATORS, *_IN_PLACE_OPERATORS)
