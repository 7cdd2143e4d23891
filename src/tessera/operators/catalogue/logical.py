"""Logic on truth values, and on the bits of whole numbers; also in place."""

from __future__ import annotations

from functools import partial

from tessera.operators.catalogue.elementwise import NO_FLOPS, binary, inplace_binary, inplace_unary, unary
from tessera.operators.draws import booleans, integers

WORDS = integers(2**30, low=-(2**30))
SHIFTS = integers(8)

_logical = partial(binary, "logical", lhs=booleans, rhs=booleans, kind="bool")
_logical_inplace = partial(inplace_binary, "logical", lhs=booleans, rhs=booleans, kind="bool")
_bitwise = partial(binary, "logical", lhs=WORDS, rhs=WORDS, kind="int32")
_bitwise_inplace = partial(inplace_binary, "logical", lhs=WORDS, rhs=WORDS, kind="int32")
_bitwise_scalar = partial(unary, "logical", draw=WORDS, kind="int32")
_shift = partial(binary, "logical", lhs=WORDS, rhs=SHIFTS, kind="int32")

OPERATORS = (
    *(_logical(f"logical_{name}", **NO_FLOPS) for name in ("and", "or", "xor")),
    unary("logical", "logical_not", booleans, kind="bool", **NO_FLOPS),
    *(_logical_inplace(f"logical_{name}", **NO_FLOPS) for name in ("and", "or", "xor")),
    inplace_unary("logical", "logical_not", booleans, kind="bool", **NO_FLOPS),
    *(_bitwise(f"bitwise_{name}", **NO_FLOPS) for name in ("and", "or", "xor")),
    unary("logical", "bitwise_not", WORDS, kind="int32", **NO_FLOPS),
    *(_bitwise_inplace(f"bitwise_{name}", **NO_FLOPS) for name in ("and", "or", "xor")),
    inplace_unary("logical", "bitwise_not", WORDS, kind="int32", **NO_FLOPS),
    *(
        _bitwise_scalar(
            f"bitwise_{name}_scalar",
            torch=f"torch.bitwise_{name}(data, other)",
            reference=f"np.bitwise_{name}(data, other)",
            attributes={"other": 0x0F0F},
            **NO_FLOPS,
        )
        for name in ("and", "or", "xor")
    ),
    _shift("bitwise_left_shift", reference="np.left_shift(lhs, rhs)", **NO_FLOPS),
    _shift("bitwise_right_shift", reference="np.right_shift(lhs, rhs)", **NO_FLOPS),
    *(
        _bitwise_scalar(
            f"bitwise_{side}_shift_scalar",
            torch=f"torch.bitwise_{side}_shift(data, other)",
            reference=f"np.{side}_shift(data, other)",
            attributes={"other": 3},
            **NO_FLOPS,
        )
        for side in ("left", "right")
    ),
)
