"""Trigonometric and hyperbolic functions and their inverses, also in place."""

from __future__ import annotations

from functools import partial

from tessera.operators.catalogue.elementwise import LINEAR_GRADIENT, binary, inplace_binary, inplace_unary, unary
from tessera.operators.draws import cells, uniform
from tessera.operators.work import per_output

_unary = partial(unary, "trigonometric")
_inplace = partial(inplace_unary, "trigonometric")

INSIDE_ONE = uniform(-0.9, 0.9)

OPERATORS = (
    _unary("sin"),
    _unary("cos"),
    _unary("tan", uniform(-1.2, 1.2)),
    _unary("asin", INSIDE_ONE, reference="np.arcsin(data)", aliases=("arcsin",)),
    _unary("acos", INSIDE_ONE, reference="np.arccos(data)", aliases=("arccos",)),
    _unary("atan", reference="np.arctan(data)", aliases=("arctan",)),
    # not across the cut at zero, where the angle jumps by a full turn
    binary("trigonometric", "atan2", cells(-3, 3), reference="np.arctan2(lhs, rhs)", aliases=("arctan2",)),
    _unary("sinh"),
    _unary("cosh"),
    _unary("tanh"),
    _unary("asinh", reference="np.arcsinh(data)", aliases=("arcsinh",)),
    _unary("acosh", uniform(1.2, 10.0), reference="np.arccosh(data)", aliases=("arccosh",)),
    _unary("atanh", INSIDE_ONE, reference="np.arctanh(data)", aliases=("arctanh",)),
    _unary("sinc", flops=per_output(3), aliases=("special_sinc",)),
    _unary("deg2rad", uniform(-180.0, 180.0), **LINEAR_GRADIENT),
    _unary("rad2deg", uniform(-3.0, 3.0), **LINEAR_GRADIENT),
    # in place: those that lead to a limit when repeated, slowly enough to keep clear of denormals
    _inplace("sin"),
    _inplace("cos"),
    _inplace("tanh"),
    _inplace("atan", reference="np.arctan(data, out=data)", aliases=("atan_", "arctan_")),
    _inplace("asinh", reference="np.arcsinh(data, out=data)", aliases=("asinh_", "arcsinh_")),
    inplace_binary(
        "trigonometric",
        "atan2",
        cells(-3, 3),
        uniform(0.3, 0.7),
        reference="np.arctan2(lhs, rhs, out=lhs)",
        aliases=("atan2_", "arctan2_"),
    ),
)
