"""Rounding to whole numbers and decimals, also in place."""

from __future__ import annotations

from functools import partial

from tessera.operators.catalogue.elementwise import SAME_GRADIENT, ZERO_GRADIENT, inplace_unary, unary
from tessera.operators.draws import cells

_unary = partial(unary, "rounding")
_inplace = partial(inplace_unary, "rounding")

BETWEEN_INTEGERS = cells(-4, 4)
AROUND_INTEGERS = cells(-4, 4, -0.4, 0.4)  # never halfway between two

OPERATORS = (
    _unary("floor", BETWEEN_INTEGERS, **ZERO_GRADIENT),
    _unary("ceil", BETWEEN_INTEGERS, **ZERO_GRADIENT),
    _unary("trunc", BETWEEN_INTEGERS, aliases=("fix",), **ZERO_GRADIENT),
    _unary("round", AROUND_INTEGERS, **ZERO_GRADIENT),
    _unary(
        "round_decimals",
        cells(-15, 15, -0.4, 0.4, width=0.1),
        torch="torch.round(data, decimals=decimals)",
        reference="np.round(data, decimals)",
        attributes={"decimals": 1},
        **ZERO_GRADIENT,
    ),
    _unary("frac", BETWEEN_INTEGERS, reference="np.fmod(data, 1)", **SAME_GRADIENT),
    # in place: the second time there is nothing left to round
    _inplace("floor"),
    _inplace("ceil"),
    _inplace("trunc", aliases=("trunc_", "fix_")),
    _inplace("round"),
    _inplace(
        "round_decimals",
        cells(-15, 15, -0.4, 0.4, width=0.1),
        torch="data.round_(decimals=decimals)",
        reference="np.round(data, decimals, out=data)",
        attributes={"decimals": 1},
        aliases=(),
    ),
    _inplace("frac", reference="np.fmod(data, 1, out=data)"),
)
