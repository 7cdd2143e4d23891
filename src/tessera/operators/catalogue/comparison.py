"""Comparisons with a tensor, a scalar or NaN; logic on booleans and bits; in-place variants."""

from __future__ import annotations

from functools import partial

from tessera.operators.catalogue.families import (
    MATRIX_SIDES,
    NO_FLOPS,
    NO_GRADIENT,
    WIDE_DTYPES,
    ElementwiseFamily,
    define_operator,
)
from tessera.operators.draws import booleans, constant, integers, not_all_finite
from tessera.operators.operator import Input, count_per_input, make_sizes

_COMPARISON_FAMILY = ElementwiseFamily("comparison", NO_GRADIENT)
_LOGICAL_FAMILY = ElementwiseFamily("logical", NO_FLOPS)
_define_unary, _define_binary = _COMPARISON_FAMILY.define_unary, _COMPARISON_FAMILY.define_binary

FEW_INTEGERS = integers(4)  # four different values, so that many comparisons are equal

# name in torch -> name in NumPy, aliases in torch
COMPARISON_NAMES = {
    "eq": ("equal", ()),
    "ne": ("not_equal", ("not_equal",)),
    "lt": ("less", ("less",)),
    "le": ("less_equal", ("less_equal",)),
    "gt": ("greater", ("greater",)),
    "ge": ("greater_equal", ("greater_equal",)),
}

_COMPARISON_OPERATORS = (
    *(
        _define_binary(name, FEW_INTEGERS, FEW_INTEGERS, reference=f"np.{numpy}", aliases=aliases)
        for name, (numpy, aliases) in COMPARISON_NAMES.items()
    ),
    *(
        _define_unary(
            f"{name}_scalar", FEW_INTEGERS, torch=f"torch.{name}", reference=f"np.{numpy}", attributes={"other": 1.0}
        )
        for name, (numpy, _) in COMPARISON_NAMES.items()
    ),
    *(
        _define_binary(name, FEW_INTEGERS, FEW_INTEGERS, reference=f"np.{numpy}", inplace=True)
        for name, (numpy, _) in COMPARISON_NAMES.items()
    ),
    _define_binary("isclose", FEW_INTEGERS, FEW_INTEGERS, flops=count_per_input("lhs", 4)),
    # equal inputs: both operators may stop at the first difference
    _define_binary("allclose", constant(0.5), constant(0.5), flops=count_per_input("lhs", 4)),
    _define_binary("equal", constant(0.5), constant(0.5), reference="np.array_equal", flops=count_per_input("lhs")),
    *(_define_unary(name, not_all_finite) for name in ("isnan", "isinf", "isfinite", "isposinf", "isneginf")),
    _define_unary("signbit"),
    _define_unary("isreal", FEW_INTEGERS, kind="complex", **WIDE_DTYPES),
    define_operator(
        "comparison",
        "isin",
        sizes=make_sizes(
            lambda n: {
                "data": Input((n, n), integers(64), "int64"),
                "test_elements": Input((16,), integers(64), "int64"),
            },
            *MATRIX_SIDES,
        ),
        **NO_FLOPS,
    ),
)

INT32_VALUES = integers(2**30, low=-(2**30))

_define_boolean_binary = partial(_LOGICAL_FAMILY.define_binary, lhs=booleans, rhs=booleans, kind="bool")
_define_bitwise_binary = partial(_LOGICAL_FAMILY.define_binary, lhs=INT32_VALUES, rhs=INT32_VALUES, kind="int32")
_define_bitwise_scalar = partial(_LOGICAL_FAMILY.define_unary, draw=INT32_VALUES, kind="int32")
_LOGIC_NAMES, _SHIFT_DIRECTIONS = ("and", "or", "xor"), ("left", "right")

_LOGIC_OPERATORS = (
    *(
        operator
        for inplace in (False, True)
        for operator in (
            *(_define_boolean_binary(f"logical_{gate}", inplace=inplace) for gate in _LOGIC_NAMES),
            _LOGICAL_FAMILY.define_unary("logical_not", booleans, kind="bool", inplace=inplace),
        )
    ),
    *(
        operator
        for inplace in (False, True)
        for operator in (
            *(_define_bitwise_binary(f"bitwise_{gate}", inplace=inplace) for gate in _LOGIC_NAMES),
            _LOGICAL_FAMILY.define_unary("bitwise_not", INT32_VALUES, kind="int32", inplace=inplace),
        )
    ),
    *(
        _define_bitwise_scalar(
            f"bitwise_{gate}_scalar",
            torch=f"torch.bitwise_{gate}",
            reference=f"np.bitwise_{gate}",
            attributes={"other": 0x0F0F},
        )
        for gate in _LOGIC_NAMES
    ),
    *(
        _define_bitwise_binary(f"bitwise_{side}_shift", rhs=integers(8), reference=f"np.{side}_shift")
        for side in _SHIFT_DIRECTIONS
    ),
    *(
        _define_bitwise_scalar(
            f"bitwise_{side}_shift_scalar",
            torch=f"torch.bitwise_{side}_shift",
            reference=f"np.{side}_shift",
            attributes={"other": 3},
        )
        for side in _SHIFT_DIRECTIONS
    ),
)

OPERATORS = (*_COMPARISON_OPERATORS, *_LOGIC_OPERATORS)
