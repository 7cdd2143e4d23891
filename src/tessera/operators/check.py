"""Outputs and gradients held against the reference before anything is timed.

The reference is a NumPy program in double precision that shares no code with any backend. Gradients are checked by
what defines them: along a random direction the reference must change by the inner product of gradient and direction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tessera.errors import Refused, TesseraError
from tessera.operators.arrays import Array
from tessera.operators.backends.backend import Prepared, Request
from tessera.operators.expression import bound
from tessera.operators.inputs import COMPLEX, narrowed, wide_names
from tessera.operators.operator import Operator

# relative to the larger of a value and the typical size of the output: many times the rounding of a long sum
TOLERANCE = {"float64": 1e-9, "float32": 2e-4, "float16": 2e-2, "bfloat16": 1e-1}
GRADIENT_TOLERANCE = {"float64": 1e-5, "float32": 5e-3, "float16": 5e-2, "bfloat16": 2e-1}
LOOSEST = 0.5  # with more, zeros might pass
SMALLEST = {"float64": 5e-324, "float32": 1.4e-45, "float16": 6e-8, "bfloat16": 9.2e-41}  # steps between denormals
STEP = 1e-6
DIRECTIONS, TELLING = 4, 0.1  # tried until one changes the outputs by this part of what it might
DEVIATION = 12**-0.5  # of a direction's numbers, which lie between -0.5 and 0.5


def reference_names() -> dict[str, Any]:
    """What reference expressions may use beside their inputs."""
    try:
        import scipy.special

        import tessera.operators.reference as ref
    except ImportError as error:
        raise TesseraError("the references cannot be computed", got=str(error), do="install SciPy there") from None
    return {"np": np, "ref": ref, "special": scipy.special, "scipy": scipy}


def reference_outputs(
    operator: Operator, arrays: Mapping[str, Array], attributes: Mapping[str, Any]
) -> tuple[Array, ...]:
    """What the operator should give, in double precision."""
    np.random.seed(0)  # references of random operators draw from the global generator
    names = {**reference_names(), **wide_names(arrays, attributes)}
    with np.errstate(all="ignore"):
        return flat(bound(operator.reference, names)())


def flat(result: Any) -> tuple[Array, ...]:
    """Every array of a result, however it is nested."""
    if isinstance(result, list | tuple):
        return tuple(array for part in result for array in flat(part))
    return () if result is None else (np.asarray(result),)


def check_outputs(
    operator: Operator, got: Sequence[Array], want: Sequence[Array], *, dtype: str, names: Mapping[str, Any]
) -> None:
    """Refuse outputs that are not the reference's."""
    if operator.checked:
        seen = [flat(bound(operator.checked, {"np": np, "out": out, "i": names})()) for out in (got, want)]
        got, want = seen
    if len(got) != len(want):
        raise Refused(f"{operator.name} gives {len(got)} outputs, the reference {len(want)}")
    for number, (one, other) in enumerate(zip(got, want, strict=True)):
        which = f"output {number} of {operator.name}" if len(got) > 1 else f"{operator.name}"
        if one.shape != other.shape:
            raise Refused(f"{which} has another shape than the reference", got=one.shape, allowed=str(other.shape))
        if operator.check == "values":
            _same_values(which, one, other, dtype, min(LOOSEST, TOLERANCE[dtype] * operator.tolerance))
        elif operator.check == "moments":
            _same_moments(which, one, other)


def _same_values(which: str, got: Array, want: Array, dtype: str, tolerance: float) -> None:
    if got.dtype.kind not in "fc" and want.dtype.kind not in "fc":
        wrong = int(np.count_nonzero(got != want))
        if wrong:
            raise Refused(f"{which} differs from the reference in {wrong} of {got.size} values")
        return
    wide = np.complex128 if "c" in (got.dtype.kind, want.dtype.kind) else np.float64
    one, other = got.astype(wide), want.astype(wide)
    right = one == _rounded(other, dtype)  # also where the dtype ends: what is beyond it is zero or infinite
    known = np.isfinite(other)
    left, others = known & ~right, ~known & ~right
    if not np.array_equal(one[others], other[others], equal_nan=True) or not np.isfinite(one[left]).all():
        raise Refused(f"{which} is not finite where the reference is, or the reverse")
    if not left.any():
        return
    typical = np.sqrt(np.mean(np.abs(other[known]) ** 2))
    difference, size = np.abs(one[left] - other[left]), np.abs(other[left])
    # a denormal may be off by a step, however large a part of it that is
    beyond = np.maximum(difference - SMALLEST[dtype], 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = float(np.where(beyond > 0, beyond / np.maximum(size, typical), 0).max())
    if error > tolerance:
        raise Refused(f"{which} differs from the reference by {error:.1e} of its size", allowed=f"{tolerance:.1e}")


def _rounded(array: Array, dtype: str) -> Array:
    """Numbers as a dtype has them."""
    with np.errstate(over="ignore"):
        return array.astype(COMPLEX.get(dtype, "complex64")) if array.dtype.kind == "c" else narrowed(array, dtype)


def _same_moments(which: str, got: Array, want: Array) -> None:
    """Mean and deviation of random numbers, to six standard errors."""
    one, other = got.astype(np.float64), want.astype(np.float64)
    spread = max(float(other.std()), 1e-12)
    allowed = 6 * spread * np.sqrt(2.0 / max(one.size, 1))
    for what, difference in (("mean", abs(one.mean() - other.mean())), ("deviation", abs(one.std() - other.std()))):
        if not difference <= (allowed if what == "mean" else 3 * allowed) + 1e-6:
            raise Refused(f"{what} of {which} lies {difference:.1e} from the reference's", allowed=f"{allowed:.1e}")


def check_gradients(request: Request, prepared: Prepared) -> None:
    """Refuse gradients along which the reference does not change as they say."""
    operator = request.operator
    if not prepared.gradients:
        raise Refused(f"{operator.name} gives no gradient of any input")
    rng = np.random.default_rng(7)
    names = {**reference_names(), **wide_names(request.arrays, request.attributes)}
    # the whole gradient gives the size of a usual change: along a single direction little may change by chance
    whole = float(np.sqrt(sum(np.square(np.abs(gradient)).sum() for gradient in prepared.gradients.values())))
    for _ in range(DIRECTIONS):
        direction = {name: _direction(names[name], rng) for name in prepared.gradients}
        expected, size = _change(operator, names, direction, prepared.output_gradients)
        size = max(size, DEVIATION * whole)
        if abs(expected) >= TELLING * size:  # along others even a gradient of zeros would do
            break
    found = sum(float(np.real(np.conj(prepared.gradients[name]) * direction[name]).sum()) for name in direction)
    error = abs(found - expected) / size
    tolerance = min(LOOSEST, GRADIENT_TOLERANCE[request.dtype] * operator.gradient_tolerance)
    if not error <= tolerance:
        raise Refused(f"the gradient of {operator.name} differs by {error:.1e} of its size", allowed=f"{tolerance:.1e}")


def _change(
    operator: Operator, names: Mapping[str, Any], direction: Mapping[str, Array], weights: Sequence[Array]
) -> tuple[float, float]:
    """How much the weighted sum of the reference's outputs changes along a direction, and how much it might."""
    ends = []
    for sign in (1.0, -1.0):
        moved = {**names, **{name: names[name] + sign * STEP * direction[name] for name in direction}}
        with np.errstate(all="ignore"):
            outputs = flat(bound(operator.reference, moved)())
        ends.append([out for out in outputs if out.dtype.kind in "fc"])
    expected = scale = 0.0
    for above, below, weight in zip(*ends, weights, strict=True):
        terms = np.real(np.conj(weight.astype(above.dtype)) * (above - below)) / (2 * STEP)
        expected += float(terms.sum())
        scale += float(np.square(terms).sum())
    return expected, max(float(np.sqrt(scale)), abs(expected), 1e-12)


def _direction(array: Array, rng: np.random.Generator) -> Array:
    """A random step, which keeps a symmetric matrix symmetric and a triangular one triangular.

    Operators of such matrices read one triangle alone, and have a gradient among matrices of their kind only.
    """
    step = rng.random(array.shape) - 0.5
    if array.dtype.kind == "c":
        step = step + 1j * (rng.random(array.shape) - 0.5)
    if array.ndim < 2 or not array.shape[-1] == array.shape[-2] > 1:
        return step
    row, column = array[..., 0, 1:], array[..., 1:, 0]  # enough to rule most matrices out
    if np.allclose(row, column) and np.allclose(array, array.swapaxes(-1, -2)):
        return (step + step.swapaxes(-1, -2)) / 2
    if not row.any() and not np.triu(array, 1).any():
        return np.tril(step)
    if not column.any() and not np.tril(array, -1).any():
        return np.triu(step)
    return step
