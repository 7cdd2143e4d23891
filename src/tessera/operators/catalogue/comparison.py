"""Comparisons: of values with one another, with one number, and with what is not a number."""

from __future__ import annotations

from functools import partial

from tessera.operators.catalogue.elementwise import (
    NO_FLOPS,
    SIDES,
    WIDE,
    binary,
    inplace_binary,
    unary,
)
from tessera.operators.draws import constant, integers, not_all_finite
from tessera.operators.operator import Input, Operator, by_size
from tessera.operators.work import per_input

_unary = partial(unary, "comparison", differentiable=False)
_binary = partial(binary, "comparison", differentiable=False)

FEW = integers(4)  # so few values that many are equal

# torch's name -> NumPy's, and torch's own alias
RELATIONS = {
    "eq": ("equal", ()),
    "ne": ("not_equal", ("not_equal",)),
    "lt": ("less", ("less",)),
    "le": ("less_equal", ("less_equal",)),
    "gt": ("greater", ("greater",)),
    "ge": ("greater_equal", ("greater_equal",)),
}

OPERATORS = (
    *(
        _binary(name, FEW, FEW, reference=f"np.{numpy}(lhs, rhs)", aliases=aliases)
        for name, (numpy, aliases) in RELATIONS.items()
    ),
    *(
        _unary(
            f"{name}_scalar",
            FEW,
            torch=f"torch.{name}(data, other)",
            reference=f"np.{numpy}(data, other)",
            attributes={"other": 1.0},
        )
        for name, (numpy, _) in RELATIONS.items()
    ),
    *(
        inplace_binary("comparison", name, FEW, FEW, reference=f"np.{numpy}(lhs, rhs, out=lhs)")
        for name, (numpy, _) in RELATIONS.items()
    ),
    _binary("isclose", FEW, FEW, flops=per_input("lhs", 4)),
    # both compare everything only where nothing differs
    _binary("allclose", constant(0.5), constant(0.5), flops=per_input("lhs", 4)),
    _binary("equal", constant(0.5), constant(0.5), reference="np.array_equal(lhs, rhs)", flops=per_input("lhs")),
    *(_unary(name, not_all_finite) for name in ("isnan", "isinf", "isfinite", "isposinf", "isneginf")),
    _unary("signbit"),
    _unary("isreal", FEW, kind="complex", **WIDE),
    Operator(
        name="isin",
        category="comparison",
        torch="torch.isin(data, test_elements)",
        reference="np.isin(data, test_elements)",
        sizes=by_size(
            lambda n: {
                "data": Input(shape=(n, n), kind="int64", draw=integers(64)),
                "test_elements": Input(shape=(16,), kind="int64", draw=integers(64)),
            },
            *SIDES,
        ),
        **NO_FLOPS,
    ),
)
