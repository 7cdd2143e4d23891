"""From what a user asks for to the cases that answer it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tessera.errors import TesseraError
from tessera.operators.catalogue import SIZES, find
from tessera.results.record import Case

PASSES = ("forward", "backward", "both")
DTYPES = ("float32", "float64", "bfloat16", "float16")


def cases(
    names: Sequence[str] = ("*",),
    *,
    size: Sequence[str] = ("small", "medium"),
    passes: Sequence[str] = ("forward", "backward"),
    dtype: Sequence[str] = ("float32",),
    seed: int = 0,
) -> list[Case]:
    """Every operator that matches, in every size, pass and dtype.

    >>> [case.key for case in cases(["add"], size=["small"], passes=["forward"])]
    ['ops/add[backend=torch,dtype=float32,pass=forward,seed=0,size=small]']
    """
    for what, got, allowed in (("size", size, SIZES), ("pass", passes, PASSES), ("dtype", dtype, DTYPES)):
        for value in got:
            if value not in allowed:
                raise TesseraError(f"unknown {what}", got=value, allowed=allowed)
    return [
        Case(
            feature="ops",
            name=operator.name,
            params={"backend": "torch", "size": one, "pass": which, "dtype": kind, "seed": seed},
        )
        for operator, one, which, kind in itertools.product(find(names), size, passes, dtype)
    ]
