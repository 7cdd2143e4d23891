"""Draw the random input arrays of an operator; the same seed gives equal arrays on every backend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tessera.errors import Refused
from tessera.operators.arrays import Array
from tessera.operators.operator import Input, Shape
from tessera.operators.skews import VALUE_SKEWS, apply_value_skew, can_skew

COMPLEX_DTYPES = {"float32": "complex64", "float64": "complex128"}


def make_arrays(inputs: Mapping[str, Input], *, dtype: str, seed: int, skew: str = "") -> dict[str, Array]:
    """Draw random arrays for the inputs, and apply the skew named by `skew`, if any.

    NumPy has no bfloat16, so 16-bit inputs are float32 arrays with values that are exact in the 16-bit type.
    """
    rng = np.random.default_rng(seed)
    shapes = {name: entry.shape for name, entry in inputs.items()}
    arrays = {name: _draw_array(entry, rng, dtype, shapes) for name, entry in inputs.items()}
    if skew not in VALUE_SKEWS:  # a skew of shapes has been applied to `inputs` already
        return arrays
    changed = {
        name: _apply_skew(array, skew, dtype) if can_skew(name, inputs[name].kind, inputs[name].shape, skew) else array
        for name, array in arrays.items()
    }
    if all(_is_unchanged(array, changed[name]) for name, array in arrays.items()):
        raise Refused("the skew does not change any input of this operator", got=skew)
    return changed


def _apply_skew(array: Array, skew: str, dtype: str) -> Array:
    changed = apply_value_skew(array, skew, dtype)
    return round_to_dtype(changed, dtype) if skew == "denormal" else changed  # denormal numbers have fewer bits


def _is_unchanged(one: Array, other: Array) -> bool:
    return one.strides == other.strides and np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")


def _draw_array(entry: Input, rng: np.random.Generator, dtype: str, shapes: Mapping[str, Shape]) -> Array:
    if entry.kind == "complex":
        real, imaginary = entry.draw(rng, entry.shape, shapes), entry.draw(rng, entry.shape, shapes)
        return np.asarray(real + 1j * imaginary, dtype=COMPLEX_DTYPES.get(dtype, "complex64"))
    values = np.asarray(entry.draw(rng, entry.shape, shapes))
    return round_to_dtype(values, dtype) if entry.kind == "float" else values.astype(entry.kind)


def round_to_dtype(values: Array, dtype: str) -> Array:
    """Round values to a dtype, and return them in a dtype that NumPy has.

    >>> round_to_dtype(np.array([1.001953125, 1.01]), "bfloat16").tolist()
    [1.0, 1.0078125]
    """
    if dtype == "float16":
        return values.astype(np.float16).astype(np.float32)
    if dtype == "bfloat16":
        bits = values.astype(np.float32).view(np.uint32)
        half = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))  # round to nearest, ties to even
        return ((bits + half) & np.uint32(0xFFFF0000)).view(np.float32)
    return values.astype(dtype)


def widen_array(array: Array) -> Array:
    """Return a copy of an input in double precision, which the reference may overwrite."""
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    return array.astype(np.float64) if array.dtype.kind == "f" else array.copy()


def widen_inputs(arrays: Mapping[str, Array], attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables of a reference expression by name: inputs in double precision, and attributes."""
    return {**{name: widen_array(array) for name, array in arrays.items()}, **attributes}
