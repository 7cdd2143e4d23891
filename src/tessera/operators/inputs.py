"""Arrays for an operator's inputs: the same on every backend, for the same seed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tessera.errors import Refused
from tessera.operators.arrays import Array
from tessera.operators.operator import Input, Shape
from tessera.operators.skews import SKEWS, skewed, takes

COMPLEX = {"float32": "complex64", "float64": "complex128"}


def make_arrays(inputs: Mapping[str, Input], *, dtype: str, seed: int, skew: str = "") -> dict[str, Array]:
    """Random arrays of the inputs' shapes.

    NumPy has no bfloat16: 16-bit inputs come as float32 that hold nothing but values of the narrow type.
    """
    rng = np.random.default_rng(seed)
    shapes = {name: one.shape for name, one in inputs.items()}
    arrays = {name: _one(one, rng, dtype, shapes) for name, one in inputs.items()}
    if skew not in SKEWS:  # one of shapes, which the inputs have already
        return arrays
    changed = {
        name: _skewed(array, skew, dtype) if takes(name, inputs[name].kind, inputs[name].shape, skew) else array
        for name, array in arrays.items()
    }
    if all(_alike(array, changed[name]) for name, array in arrays.items()):
        raise Refused("this skew changes nothing here", got=skew)
    return changed


def _skewed(array: Array, skew: str, dtype: str) -> Array:
    changed = skewed(array, skew, dtype)
    return narrowed(changed, dtype) if skew == "denormal" else changed  # which have fewer bits than others


def _alike(one: Array, other: Array) -> bool:
    return one.strides == other.strides and np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")


def _one(one: Input, rng: np.random.Generator, dtype: str, shapes: Mapping[str, Shape]) -> Array:
    if one.kind == "complex":
        real, imaginary = one.draw(rng, one.shape, shapes), one.draw(rng, one.shape, shapes)
        return np.asarray(real + 1j * imaginary, dtype=COMPLEX.get(dtype, "complex64"))
    values = np.asarray(one.draw(rng, one.shape, shapes))
    return narrowed(values, dtype) if one.kind == "float" else values.astype(one.kind)


def narrowed(values: Array, dtype: str) -> Array:
    """Values rounded to a dtype, kept in one that NumPy has.

    >>> narrowed(np.array([1.001953125]), "bfloat16").tolist(), narrowed(np.array([1.01]), "bfloat16").tolist()
    ([1.0], [1.0078125])
    """
    if dtype == "float16":
        return values.astype(np.float16).astype(np.float32)
    if dtype == "bfloat16":
        bits = values.astype(np.float32).view(np.uint32)
        half = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))  # to nearest, ties to even
        return ((bits + half) & np.uint32(0xFFFF0000)).view(np.float32)
    return values.astype(dtype)


def widened(array: Array) -> Array:
    """A copy of an input as the reference sees it, which may overwrite it: in double precision."""
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    return array.astype(np.float64) if array.dtype.kind == "f" else array.copy()


def wide_names(arrays: Mapping[str, Array], attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The names a reference expression sees."""
    return {**{name: widened(array) for name, array in arrays.items()}, **attributes}
