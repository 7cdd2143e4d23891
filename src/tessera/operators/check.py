"""Compare outputs and gradients with a reference before timing.

The reference is a NumPy expression in double precision that shares no code with any backend. A gradient is checked with
finite differences: for a small random step of the inputs, the change of the reference outputs must equal the inner
product of the gradient and the step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from tessera.errors import Refused, TesseraError
from tessera.operators.arrays import Array, flatten_outputs
from tessera.operators.backends.backend import OperatorRequest, PreparedOperator
from tessera.operators.expression import bind_expression
from tessera.operators.inputs import COMPLEX_DTYPES, round_to_dtype, widen_inputs
from tessera.operators.operator import Operator
from tessera.results.record import Record

# Relative to the larger of the reference value and the RMS of the output. Far above the rounding error of a long sum.
OUTPUT_TOLERANCE = {"float64": 1e-9, "float32": 2e-4, "float16": 2e-2, "bfloat16": 1e-1}
GRADIENT_TOLERANCE = {"float64": 1e-5, "float32": 5e-3, "float16": 5e-2, "bfloat16": 2e-1}
MAX_TOLERANCE = 0.5  # below 1, the error of an output that is all zeros
# also the spacing between denormal numbers
SMALLEST_DENORMAL = {"float64": 5e-324, "float32": 1.4e-45, "float16": 6e-8, "bfloat16": 9.2e-41}
DIFFERENCE_STEP = 1e-6
MAX_DIRECTIONS = 4  # number of random directions to try until one changes the outputs by MIN_CHANGE_SHARE
MIN_CHANGE_SHARE = 0.1  # smallest conclusive change along a direction, relative to the largest possible change
DIRECTION_DEVIATION = 12**-0.5  # standard deviation of a uniform direction between -0.5 and 0.5


def load_reference_names() -> dict[str, Any]:
    """Import and return the modules that reference expressions may use: np, ref, special, scipy."""
    try:
        import scipy.special

        import tessera.operators.reference as ref
    except ImportError as error:
        raise TesseraError(
            "reference implementations require SciPy", got=str(error), do="install SciPy there"
        ) from None
    return {"np": np, "ref": ref, "special": scipy.special, "scipy": scipy}


def compute_reference_outputs(
    operator: Operator, arrays: Mapping[str, Array], attributes: Mapping[str, Any]
) -> tuple[Array, ...]:
    """Compute the reference outputs of an operator in double precision."""
    np.random.seed(0)  # reference expressions of random operators use NumPy's global generator
    names = {**load_reference_names(), **widen_inputs(arrays, attributes)}
    with np.errstate(all="ignore"):
        return flatten_outputs(bind_expression(operator.reference, names)())


def check_outputs(
    operator: Operator, got: Sequence[Array], want: Sequence[Array], *, dtype: str, names: Mapping[str, Any]
) -> None:
    """Raise `Refused` if the outputs differ from the reference."""
    if operator.checked:
        seen = [
            flatten_outputs(bind_expression(operator.checked, {"np": np, "out": out, "i": names})())
            for out in (got, want)
        ]
        got, want = seen
    if len(got) != len(want):
        raise Refused(f"{operator.name} returns {len(got)} outputs, but the reference returns {len(want)}")
    for number, (one, other) in enumerate(zip(got, want, strict=True)):
        label = f"output {number} of {operator.name}" if len(got) > 1 else f"{operator.name}"
        if one.shape != other.shape:
            raise Refused(f"{label} differs from the reference in shape", got=one.shape, allowed=str(other.shape))
        if operator.check == "values":
            _compare_values(label, one, other, dtype, min(MAX_TOLERANCE, OUTPUT_TOLERANCE[dtype] * operator.tolerance))
        elif operator.check == "moments":
            _compare_moments(label, one, other)


def _compare_values(label: str, got: Array, want: Array, dtype: str, tolerance: float) -> None:
    if got.dtype.kind not in "fc" and want.dtype.kind not in "fc":
        wrong = int(np.count_nonzero(got != want))
        if wrong:
            raise Refused(f"{label} differs from the reference in {wrong} of {got.size} values")
        return
    wide = np.complex128 if "c" in (got.dtype.kind, want.dtype.kind) else np.float64
    one, other = got.astype(wide), want.astype(wide)
    right = one == _round_values(other, dtype)  # values beyond the range of the dtype round to zero or infinity
    known = np.isfinite(other)
    left, others = known & ~right, ~known & ~right
    if not np.array_equal(one[others], other[others], equal_nan=True) or not np.isfinite(one[left]).all():
        raise Refused(f"{label} and the reference differ in which values are finite")
    if not left.any():
        return
    typical = np.sqrt(np.mean(np.abs(other[known]) ** 2))
    difference, size = np.abs(one[left] - other[left]), np.abs(other[left])
    # a denormal number may differ by one spacing, whatever the relative error
    beyond = np.maximum(difference - SMALLEST_DENORMAL[dtype], 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = float(np.where(beyond > 0, beyond / np.maximum(size, typical), 0).max())
    if error > tolerance:
        raise Refused(f"{label} differs from the reference: relative error {error:.1e}", allowed=f"{tolerance:.1e}")


def _round_values(array: Array, dtype: str) -> Array:
    """Round an array to a dtype."""
    with np.errstate(over="ignore"):
        return (
            array.astype(COMPLEX_DTYPES.get(dtype, "complex64"))
            if array.dtype.kind == "c"
            else round_to_dtype(array, dtype)
        )


def _compare_moments(label: str, got: Array, want: Array) -> None:
    """Raise `Refused` if mean or standard deviation of random values differ by more than six standard errors."""
    one, other = got.astype(np.float64), want.astype(np.float64)
    spread = max(float(other.std()), 1e-12)
    allowed = 6 * spread * np.sqrt(2.0 / max(one.size, 1))
    for what, difference in (("mean", abs(one.mean() - other.mean())), ("deviation", abs(one.std() - other.std()))):
        if not difference <= (allowed if what == "mean" else 3 * allowed) + 1e-6:
            raise Refused(f"{what} of {label} differs from the reference by {difference:.1e}", allowed=f"{allowed:.1e}")


def check_gradients(request: OperatorRequest, prepared: PreparedOperator) -> None:
    """Raise `Refused` if the gradients disagree with finite differences of the reference."""
    operator = request.operator
    if not prepared.gradients:
        raise Refused(f"{operator.name} returns no gradient for any input")
    rng = np.random.default_rng(7)
    names = {**load_reference_names(), **widen_inputs(request.arrays, request.attributes)}
    # The error is relative to the norm of the whole gradient: the change along one direction may be small by chance.
    whole = float(np.sqrt(sum(np.square(np.abs(gradient)).sum() for gradient in prepared.gradients.values())))
    for _ in range(MAX_DIRECTIONS):
        direction = {name: _draw_direction(names[name], rng) for name in prepared.gradients}
        expected, size = _compute_change(operator, names, direction, prepared.output_gradients)
        size = max(size, DIRECTION_DEVIATION * whole)
        if abs(expected) >= MIN_CHANGE_SHARE * size:  # otherwise a gradient of zeros would pass
            break
    actual = sum(float(np.real(np.conj(prepared.gradients[name]) * direction[name]).sum()) for name in direction)
    error = abs(actual - expected) / size
    tolerance = min(MAX_TOLERANCE, GRADIENT_TOLERANCE[request.dtype] * operator.gradient_tolerance)
    if not error <= tolerance:
        raise Refused(
            f"the gradient of {operator.name} differs: relative error {error:.1e}", allowed=f"{tolerance:.1e}"
        )


def _compute_change(
    operator: Operator, names: Mapping[str, Any], direction: Mapping[str, Array], weights: Sequence[Array]
) -> tuple[float, float]:
    """Return the change of the weighted sum of the reference outputs along a direction, and its upper bound."""
    ends = []
    for sign in (1.0, -1.0):
        shifted = {**names, **{name: names[name] + sign * DIFFERENCE_STEP * direction[name] for name in direction}}
        with np.errstate(all="ignore"):
            outputs = flatten_outputs(bind_expression(operator.reference, shifted)())
        ends.append([out for out in outputs if out.dtype.kind in "fc"])
    expected = scale = 0.0
    for above, below, weight in zip(*ends, weights, strict=True):
        terms = np.real(np.conj(weight.astype(above.dtype)) * (above - below)) / (2 * DIFFERENCE_STEP)
        expected += float(terms.sum())
        scale += float(np.square(terms).sum())
    return expected, max(float(np.sqrt(scale)), abs(expected), 1e-12)


def _draw_direction(array: Array, rng: np.random.Generator) -> Array:
    """Draw a random step that keeps a symmetric matrix symmetric and a triangular matrix triangular.

    Operators on symmetric or triangular matrices read one triangle only: their gradient is defined for such steps.
    """
    step = rng.random(array.shape) - 0.5
    if array.dtype.kind == "c":
        step = step + 1j * (rng.random(array.shape) - 0.5)
    if array.ndim < 2 or not array.shape[-1] == array.shape[-2] > 1:
        return step
    row, column = array[..., 0, 1:], array[..., 1:, 0]  # a cheap test that excludes most matrices
    if np.allclose(row, column) and np.allclose(array, array.swapaxes(-1, -2)):
        return (step + step.swapaxes(-1, -2)) / 2
    if not row.any() and not np.triu(array, 1).any():
        return np.tril(step)
    if not column.any() and not np.tril(array, -1).any():
        return np.triu(step)
    return step


OutputKind = Literal["view", "copy"]
VIEW_NOTE = "returns a view: nothing is copied"
COPY_NOTE = "returns a copy where a view is possible"
OUTPUT_NOTES = {"view": VIEW_NOTE, "copy": COPY_NOTE}


def classify_output(operator: Operator, flops: float, moved: float, *, shared: bool) -> OutputKind | None:
    """Return `view` (if `shared`) or `copy` for a pass without FLOPs and bytes; otherwise None.

    `shared` tells whether the output shares memory with an input. The result is None for operators whose outputs are
    compared by shape only (such as `empty`), because their memory is unknown.
    """
    if flops or moved or operator.check == "shape":
        return None
    return "view" if shared else "copy"


def get_output_kind(record: Record) -> str:
    """Return the output kind in a record: `view` or `copy`; empty for an operator with a FLOP or byte count."""
    return str(record.details.get("output", ""))


def same_work(one: Record, other: Record) -> bool:
    """Return whether the times of two records are comparable: both operators returned a view, or neither did."""
    return get_output_kind(one) == get_output_kind(other)
