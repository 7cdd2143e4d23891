"""Arithmetic: sums, products, quotients, remainders, bounds, and the parts of floating-point numbers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from tessera.operators.catalogue.elementwise import (
    LINEAR_GRADIENT,
    NO_FLOPS,
    NO_GRADIENT,
    SAME_GRADIENT,
    SIDES,
    SLOW_SIDES,
    WIDE,
    ZERO_GRADIENT,
    binary,
    elementwise,
    unary,
    value,
)
from tessera.operators.draws import Draw, cells, integers, normal, not_all_finite, uniform
from tessera.operators.operator import Input, Operator, by_size
from tessera.operators.work import nothing_moved, per_output

_unary = partial(unary, "arithmetic")
_binary = partial(binary, "arithmetic")
_elementwise = partial(elementwise, "arithmetic")

NOT_ZERO = uniform(0.5, 2.0)
# dividends and divisors whose quotient is never close to a whole number, where remainders jump
DIVIDEND, DIVISOR = cells(-6, 6, 0.2, 0.8), integers(5, low=1)
# two inputs that never lie close to one another: the larger of them has a kink where they meet
ONE_SIDE, OTHER_SIDE = cells(-3, 3, 0.1, 0.4), cells(-3, 3, 0.6, 0.9)
NO_KINK = cells(-3, 3)  # at zero and the bounds of clamps
PARTS = {"data": value(), "first": value(), "second": value(NOT_ZERO)}


def _with_scalar(
    name: str, torch: str, reference: str, other: float, gradient: Mapping[str, Any], draw: Draw = normal
) -> Operator:
    """An operator on `data` and one number, `other`."""
    return _unary(name, draw, torch=torch, reference=reference, attributes={"other": other}, **gradient)


def _broadcast(name: str, torch: str, rhs: Draw, backward_flops: float, backward_bytes: float) -> Operator:
    """An operator that repeats a row over a matrix; its backward pass sums over the rows."""
    return Operator(
        name=f"broadcast_{name}",
        category="arithmetic",
        torch=f"torch.{torch}(lhs, rhs)",
        reference=f"np.{name}(lhs, rhs)",
        sizes=by_size(lambda n: {"lhs": Input(shape=(n, n)), "rhs": Input(shape=(n,), draw=rhs)}, *SIDES),
        flops=per_output(),
        backward_flops=backward_flops,
        backward_bytes=backward_bytes,
    )


OPERATORS = (
    _binary("add", **SAME_GRADIENT),
    _binary("subtract", aliases=("sub",), backward_flops=1.0, backward_bytes=2 / 3),
    _binary("multiply", aliases=("mul",)),
    _binary("divide", rhs=NOT_ZERO, aliases=("div", "true_divide"), backward_flops=4.0),
    _binary(
        "divide_floor",
        DIVIDEND,
        DIVISOR,
        torch="torch.div(lhs, rhs, rounding_mode='floor')",
        reference="np.floor_divide(lhs, rhs)",
        **ZERO_GRADIENT,
    ),
    _binary(
        "divide_trunc",
        DIVIDEND,
        DIVISOR,
        torch="torch.div(lhs, rhs, rounding_mode='trunc')",
        reference="np.trunc(lhs / rhs)",
        **ZERO_GRADIENT,
    ),
    _binary("floor_divide", DIVIDEND, DIVISOR, **NO_GRADIENT),
    _binary(
        "modulo",
        DIVIDEND,
        DIVISOR,
        torch="torch.remainder(lhs, rhs)",
        reference="np.remainder(lhs, rhs)",
        aliases=("remainder",),
    ),
    _binary("fmod", DIVIDEND, DIVISOR),
    _broadcast("add", "add", normal, backward_flops=1.0, backward_bytes=0.5),
    _broadcast("subtract", "sub", normal, backward_flops=1.0, backward_bytes=0.5),
    _broadcast("multiply", "mul", normal, backward_flops=3.0, backward_bytes=1.5),
    _broadcast("divide", "div", NOT_ZERO, backward_flops=4.0, backward_bytes=1.5),
    # with one number
    _with_scalar("add_scalar", "torch.add(data, other)", "np.add(data, other)", 2.5, SAME_GRADIENT),
    _with_scalar("subtract_scalar", "torch.sub(data, other)", "np.subtract(data, other)", 2.5, SAME_GRADIENT),
    _with_scalar("rsub", "torch.rsub(data, other)", "np.subtract(other, data)", 2.5, LINEAR_GRADIENT),
    _with_scalar("multiply_scalar", "torch.mul(data, other)", "np.multiply(data, other)", 2.5, LINEAR_GRADIENT),
    _with_scalar("divide_scalar", "torch.div(data, other)", "np.divide(data, other)", 2.5, LINEAR_GRADIENT),
    _with_scalar(
        "modulo_scalar", "torch.remainder(data, other)", "np.remainder(data, other)", 3.0, SAME_GRADIENT, DIVIDEND
    ),
    _with_scalar("fmod_scalar", "torch.fmod(data, other)", "np.fmod(data, other)", 3.0, SAME_GRADIENT, DIVIDEND),
    _with_scalar(
        "floor_divide_scalar",
        "torch.floor_divide(data, other)",
        "np.floor_divide(data, other)",
        3.0,
        NO_GRADIENT,
        DIVIDEND,
    ),
    _with_scalar("copysign_scalar", "torch.copysign(data, other)", "np.copysign(data, other)", -1.0, {}, NO_KINK),
    # of one input
    _unary("negative", torch="torch.neg(data)", aliases=("neg",), **LINEAR_GRADIENT),
    _unary("positive", moved=nothing_moved, flops=per_output(0), **SAME_GRADIENT),
    _unary("abs", NO_KINK, aliases=("absolute",)),
    _unary("sign", NO_KINK, **ZERO_GRADIENT),
    _unary("sgn", kind="complex", reference="np.sign(data)", flops=per_output(5), **WIDE),
    _unary("reciprocal", NOT_ZERO),
    _unary(
        "nan_to_num",
        not_all_finite,
        torch="torch.nan_to_num(data, nan=nan, posinf=posinf, neginf=neginf)",
        reference="np.nan_to_num(data, nan=nan, posinf=posinf, neginf=neginf)",
        attributes={"nan": 0.0, "posinf": 10.0, "neginf": -10.0},
    ),
    # of several
    _elementwise(
        "addcmul",
        "torch.addcmul(data, first, second, value=value)",
        "ref.addcmul(data, first, second, value)",
        inputs=PARTS,
        attributes={"value": 0.5},
        flops=per_output(3),
        backward_bytes=1.25,
    ),
    _elementwise(
        "addcdiv",
        "torch.addcdiv(data, first, second, value=value)",
        "ref.addcdiv(data, first, second, value)",
        inputs=PARTS,
        attributes={"value": 0.5},
        flops=per_output(3),
        backward_bytes=1.25,
    ),
    _elementwise(
        "lerp",
        "torch.lerp(lhs, rhs, weight)",
        "ref.lerp(lhs, rhs, weight)",
        inputs={"lhs": value(), "rhs": value(), "weight": value(uniform(0.0, 1.0))},
        flops=per_output(3),
    ),
    _binary(
        "lerp_scalar",
        torch="torch.lerp(lhs, rhs, weight)",
        reference="ref.lerp(lhs, rhs, weight)",
        attributes={"weight": 0.3},
        flops=per_output(3),
        backward_bytes=1.0,
    ),
    _binary("hypot", flops=per_output(4)),
    # the larger and the smaller
    *(_binary(name, ONE_SIDE, OTHER_SIDE) for name in ("maximum", "minimum", "fmax", "fmin")),
    _unary(
        "clamp",
        NO_KINK,
        torch="torch.clamp(data, min, max)",
        reference="np.clip(data, min, max)",
        attributes={"min": -1.0, "max": 1.0},
        aliases=("clip",),
    ),
    _unary(
        "clamp_min",
        NO_KINK,
        torch="torch.clamp_min(data, min)",
        reference="np.maximum(data, min)",
        attributes={"min": -1.0},
    ),
    _unary(
        "clamp_max",
        NO_KINK,
        torch="torch.clamp_max(data, max)",
        reference="np.minimum(data, max)",
        attributes={"max": 1.0},
    ),
    _elementwise(
        "clamp_tensor",
        "torch.clamp(data, lower, upper)",
        "np.clip(data, lower, upper)",
        inputs={
            "data": value(ONE_SIDE),
            "lower": value(cells(-3, 0, 0.6, 0.9)),
            "upper": value(cells(0, 3, 0.6, 0.9)),
        },
    ),
    # parts of floating-point numbers
    _unary("frexp", cells(1, 8), backward_flops=2.0),
    # PyTorch 2.13 takes powers of two of negative exponents as whole numbers in the backward pass, so as zero
    _elementwise(
        "ldexp",
        "torch.ldexp(lhs, rhs)",
        "np.ldexp(lhs, rhs)",
        inputs={"lhs": value(), "rhs": value(integers(5), "int32")},
        flops=per_output(2),
    ),
    _binary("nextafter"),
    _binary("copysign", NO_KINK, NO_KINK),
    _binary("heaviside", integers(2, low=-1), NOT_ZERO, **NO_GRADIENT),
    # whole numbers
    _binary("gcd", integers(1000, low=1), integers(1000, low=1), kind="int32", sides=SLOW_SIDES, **NO_FLOPS),
    _binary("lcm", integers(1000, low=1), integers(1000, low=1), kind="int32", sides=SLOW_SIDES, **NO_FLOPS),
)
