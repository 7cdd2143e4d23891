"""Checks of the results of a call, before it is timed, against double precision or a reference implementation."""

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
from tessera.operators.backends.backend import PreparedOperator
from tessera.operators.check import OUTPUT_TOLERANCE, check_outputs
from tessera.operators.inputs import round_to_dtype
from tessera.operators.sources.torch_call import TorchCall, make_unlisted_operator

# Factors on the catalogue's tolerances: inputs of captured calls and OpInfo samples may be ill-conditioned.
TOLERANCE_FACTORS = {"float64": 10.0, "float32": 10.0, "float16": 2.0, "bfloat16": 1.0}
MAX_SENSITIVITY = 0.3  # largest tolerance for ill-conditioned results; beyond it, a check would be meaningless


def check_values(
    name: str,
    got: Sequence[Array],
    want: Sequence[Array],
    *,
    dtype: str,
    tolerance: float | None = None,
    values: bool = True,
    unique: str = "",
) -> None:
    """Raise `Refused` if outputs differ from the expected outputs; `values=False` compares shapes only.

    The expected outputs are rounded to the dtype first, so that overflow is infinity in both. `unique` is an
    expression of the outputs `out` that selects or computes the parts without arbitrary signs or phases.
    """
    precision = dtype if dtype in OUTPUT_TOLERANCE else "float32"
    allowed = TOLERANCE_FACTORS[precision] if tolerance is None else tolerance
    operator = make_unlisted_operator(name, check="values" if values else "shape", checked=unique, tolerance=allowed)
    check_outputs(operator, got, [_round_to_precision(array, precision) for array in want], dtype=precision, names={})


def check_against_double(
    wide_call: TorchCall,
    prepared: PreparedOperator,
    *,
    pass_name: str,
    dtype: str,
    reference: Sequence[Array] | None = None,
    unique: str = "",
) -> str:
    """Compare the results of a pass with double precision; compare outputs with `reference` instead, if given.

    Near a pole or a singular matrix, rounding the inputs once changes the result by more than any fixed tolerance. In
    that case the tolerance is four times the measured change, and the returned text says so for the record's notes.
    """
    wanted = wide_call.widen().prepare(pass_name, dtype)  # a copy: an in-place call would overwrite its input
    precision = dtype if dtype in OUTPUT_TOLERANCE else "float32"

    def compare(tolerance: float) -> None:
        outputs = wanted.outputs if reference is None else reference
        check_values(wide_call.name, prepared.outputs, outputs, dtype=dtype, tolerance=tolerance, unique=unique)
        if prepared.gradients and not unique:
            if prepared.gradients.keys() != wanted.gradients.keys():
                raise Refused(f"{wide_call.name} has gradients for other inputs than in double precision")
            got, want = ([*one.gradients.values()] for one in (prepared, wanted))
            check_values(f"the gradient of {wide_call.name}", got, want, dtype=dtype, tolerance=tolerance)

    try:
        compare(TOLERANCE_FACTORS[precision])
    except Refused:
        sensitive = _measure_sensitivity(wide_call, wanted, pass_name, precision)
        if not TOLERANCE_FACTORS[precision] * OUTPUT_TOLERANCE[precision] < 4 * sensitive < MAX_SENSITIVITY:
            raise
        compare(4 * sensitive / OUTPUT_TOLERANCE[precision])
        return f", to {4 * sensitive:.0e}: one rounding of its inputs changes it by {sensitive:.0e}"
    return ""


def _measure_sensitivity(wide: TorchCall, wanted: PreparedOperator, pass_name: str, precision: str) -> float:
    """Return the largest relative change of outputs and gradients when each input changes by one rounding error."""
    unit = torch.finfo(getattr(torch, precision)).eps
    generator = torch.Generator().manual_seed(0)

    def perturb(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.layout != torch.strided:
            return value
        signs = torch.randint(2, value.shape, generator=generator) * 2 - 1
        return (value.detach() * (1 + unit * signs)).requires_grad_(value.requires_grad)

    args, kwargs = tree_map(perturb, (wide.args, dict(wide.kwargs)))
    nudged = replace(wide, args=args, kwargs=kwargs).prepare(pass_name, "float64")
    one, other = ((*result.outputs, *result.gradients.values()) for result in (nudged, wanted))
    if [array.shape for array in one] != [array.shape for array in other]:
        return math.inf
    return max((_compute_distance(a, b) for a, b in zip(one, other, strict=True) if b.dtype.kind in "fc"), default=0.0)


def _compute_distance(one: Array, other: Array) -> float:
    """Return the largest relative difference of two arrays, over elements that are finite in both.

    A difference is relative to the absolute value in `other`, or to the RMS of `other` if that is larger.
    """
    finite = np.isfinite(one) & np.isfinite(other)
    size = np.abs(other[finite])
    if not size.size:
        return 0.0
    scale = np.maximum(np.maximum(size, np.sqrt(np.mean(size**2))), 1e-30)
    return float((np.abs(one[finite] - other[finite]) / scale).max())


def _round_to_precision(array: Array, precision: str) -> Array:
    with np.errstate(over="ignore"):
        if array.dtype.kind == "c":
            return array if precision == "float64" else array.astype(np.complex64)
        return round_to_dtype(array, precision) if array.dtype.kind == "f" else array
