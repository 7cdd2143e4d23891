"""Skewed inputs: memory layouts, values and shapes that change the speed of an operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from tessera.errors import Refused
from tessera.operators.arrays import Array
from tessera.operators.operator import Input, Operator, Shape

# Skews of values and layout: NumPy expressions over `array` and `tiny`, the smallest normal number of the dtype.
VALUE_SKEWS = {
    # non-contiguous: gaps between the values, or transposed order in memory
    "strided": "np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2) if array.ndim > 1"
    " else np.repeat(array, 2)[::2]",
    "denormal": "array * (tiny / 8)",
    # one value in a hundred is NaN, including the first
    "nan": "np.where(np.arange(array.size).reshape(array.shape) % 100 == 0, np.nan, array)",
    # zeros except in the middle row
    "one_hot_row": "np.where(np.arange(len(array)).reshape(-1, *[1] * (array.ndim - 1)) == len(array) // 2, array, 0)",
    "sorted": "np.sort(array, axis=-1)",
    "reversed": "np.sort(array, axis=-1)[..., ::-1].copy()",
    "constant": "np.full_like(array, 0.5)",
}
# finite differences fail at zeros, ties and NaN
NON_DIFFERENTIABLE_SKEWS = ("denormal", "nan", "one_hot_row", "constant")
INTEGER_SKEWS = ("sorted", "reversed", "constant", "strided")  # skews that apply to integers too


def can_skew(name: str, kind: str, shape: Shape, skew: str) -> bool:
    """Return whether a skew of values or layout applies to an input; it never applies to indices and masks."""
    whole = kind.startswith(("int", "uint")) and name == "data" and skew in INTEGER_SKEWS
    return bool(shape) and (kind in ("float", "complex") if skew == "strided" else kind == "float" or whole)


def get_smallest_normal(dtype: str) -> float:
    """Return the smallest normal value of a dtype; smaller values are denormal.

    >>> get_smallest_normal("float16"), get_smallest_normal("bfloat16") == get_smallest_normal("float32")
    (6.103515625e-05, True)
    """
    return float(np.finfo({"bfloat16": "float32"}.get(dtype, dtype)).tiny)


def apply_value_skew(array: Array, skew: str, dtype: str) -> Array:
    """Apply a skew of values or layout to an input array."""
    changed: Array = eval(VALUE_SKEWS[skew], {"np": np, "array": array, "tiny": get_smallest_normal(dtype)})
    return changed if changed.dtype == array.dtype else changed.astype(array.dtype)


def _add_one_to_dims(name: str, position: int, shape: Shape) -> Shape:
    return tuple(n + 1 if n > 1 else n for n in shape)


def _round_up_to_power_of_two(name: str, position: int, shape: Shape) -> Shape:
    return tuple(1 << (n - 1).bit_length() if n else 0 for n in shape)


def _shrink_to_row(name: str, position: int, shape: Shape) -> Shape:
    return (1,) * (len(shape) - 1) + shape[-1:] if position else shape


# Skews of shapes: name -> function of an input's name, position and shape that returns the new shape.
SHAPE_SKEWS: Mapping[str, Callable[[str, int, Shape], Shape]] = {
    "off_by_one": _add_one_to_dims,
    "power_of_two": _round_up_to_power_of_two,
    "broadcast": _shrink_to_row,
}
ALL_SKEWS = (*VALUE_SKEWS, *SHAPE_SKEWS)


def check_not_overwritten(operator: Operator, skew: str) -> None:
    """Raise `Refused` for a skew of values if the operator overwrites its inputs: only the first call would have it."""
    writes = operator.name.startswith("inplace_") or operator.category == "optimiser"
    if writes and skew in VALUE_SKEWS and skew != "strided":
        allowed = [name for name in ALL_SKEWS if name == "strided" or name in SHAPE_SKEWS]
        raise Refused(
            f"{operator.name} overwrites its inputs, so only the first call would have the skew",
            got=skew,
            allowed=allowed,
        )


def apply_shape_skew(inputs: Mapping[str, Input], skew: str) -> dict[str, Input]:
    """Apply a skew of shapes to the inputs; raise `Refused` if inputs differ in shape (their shapes are related)."""
    if skew not in SHAPE_SKEWS:
        return dict(inputs)
    if len({entry.shape for entry in inputs.values()}) != 1:
        raise Refused(f"the shapes of {', '.join(inputs)} depend on one another", got=skew, allowed=tuple(VALUE_SKEWS))
    change = SHAPE_SKEWS[skew]
    reshaped = {
        name: replace(entry, shape=change(name, position, entry.shape))
        for position, (name, entry) in enumerate(inputs.items())
    }
    if skew == "broadcast" and reshaped == dict(inputs):  # `power_of_two` may leave shapes unchanged
        raise Refused("the skew does not change any input of this operator", got=skew)
    return reshaped
