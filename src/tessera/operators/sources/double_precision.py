"""A call held against the same one in double precision, or against a reference, before it is timed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_map

from tessera.errors import Refused
from tessera.operators.arrays import Array
from tessera.operators.backends.backend import Prepared
from tessera.operators.check import TOLERANCE, check_outputs
from tessera.operators.inputs import narrowed
from tessera.operators.sources.torch_call import TorchCall, unlisted

# inputs are whatever they are, not chosen to be well-conditioned: so many times the catalogue's tolerances
LOOSE = {"float64": 10.0, "float32": 10.0, "float16": 2.0, "bfloat16": 1.0}
ILL = 0.3  # a result that one rounding of its inputs changes by more than about this cannot be checked


def check(
    name: str,
    got: Sequence[Array],
    want: Sequence[Array],
    *,
    dtype: str,
    tolerance: float | None = None,
    values: bool = True,
    unique: str = "",
) -> None:
    """Refuse outputs that are not those wanted; `values=False` holds only their shapes to it.

    What is wanted is rounded to the dtype first: beyond its range is infinity in both. `unique` is an expression over
    `out` that gives what there is only one of.
    """
    precision = dtype if dtype in TOLERANCE else "float32"
    allowed = LOOSE[precision] if tolerance is None else tolerance
    operator = unlisted(name, check="values" if values else "shape", checked=unique, tolerance=allowed)
    check_outputs(operator, got, [_rounded(array, precision) for array in want], dtype=precision, names={})


def check_against(
    wide: TorchCall,
    found: Prepared,
    *,
    which: str,
    dtype: str,
    reference: Sequence[Array] | None = None,
    unique: str = "",
) -> str:
    """Hold a pass against the same one in double precision, its outputs against a reference where there is one.

    Near a pole or a singular matrix one rounding of the inputs changes the result by more than any fixed tolerance.
    Where it does, four times as much is allowed, and said.
    """
    wanted = wide.widened().prepare(which, dtype)  # a copy: what works in place is needed once more as it was
    precision = dtype if dtype in TOLERANCE else "float32"

    def hold(tolerance: float) -> None:
        outputs = wanted.outputs if reference is None else reference
        check(wide.name, found.outputs, outputs, dtype=dtype, tolerance=tolerance, unique=unique)
        if found.gradients and not unique:
            if found.gradients.keys() != wanted.gradients.keys():
                raise Refused(f"{wide.name} has gradients of other inputs than in double precision")
            got, want = ([*one.gradients.values()] for one in (found, wanted))
            check(f"the gradient of {wide.name}", got, want, dtype=dtype, tolerance=tolerance)

    try:
        hold(LOOSE[precision])
    except Refused:
        sensitive = _sensitivity(wide, wanted, which, precision)
        if not LOOSE[precision] * TOLERANCE[precision] < 4 * sensitive < ILL:
            raise
        hold(4 * sensitive / TOLERANCE[precision])
        return f", to {4 * sensitive:.0e}: one rounding of its inputs changes it by {sensitive:.0e}"
    return ""


def _sensitivity(wide: TorchCall, wanted: Prepared, which: str, precision: str) -> float:
    """How far outputs and gradients move when each input is rounded once, of their size."""
    unit = torch.finfo(getattr(torch, precision)).eps
    generator = torch.Generator().manual_seed(0)

    def nudged(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.layout != torch.strided:
            return value
        signs = torch.randint(2, value.shape, generator=generator) * 2 - 1
        return (value.detach() * (1 + unit * signs)).requires_grad_(value.requires_grad)

    args, kwargs = tree_map(nudged, (wide.args, dict(wide.kwargs)))
    moved = replace(wide, args=args, kwargs=kwargs).prepare(which, "float64")
    one, other = ((*found.outputs, *found.gradients.values()) for found in (moved, wanted))
    if [array.shape for array in one] != [array.shape for array in other]:
        return math.inf
    return max((_distance(a, b) for a, b in zip(one, other, strict=True) if b.dtype.kind in "fc"), default=0.0)


def _distance(one: Array, other: Array) -> float:
    """The largest difference relative to the larger of a value and the typical one, where both are finite."""
    finite = np.isfinite(one) & np.isfinite(other)
    size = np.abs(other[finite])
    if not size.size:
        return 0.0
    scale = np.maximum(np.maximum(size, np.sqrt(np.mean(size**2))), 1e-30)
    return float((np.abs(one[finite] - other[finite]) / scale).max())


def _rounded(array: Array, precision: str) -> Array:
    with np.errstate(over="ignore"):
        if array.dtype.kind == "c":
            return array if precision == "float64" else array.astype(np.complex64)
        return narrowed(array, precision) if array.dtype.kind == "f" else array
