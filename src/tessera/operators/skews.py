"""Inputs that are unlike the average: layouts and values that make the same operator fast or slow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from tessera.errors import Refused
from tessera.operators.arrays import Array
from tessera.operators.operator import Input, Operator, Shape

# values and layouts: what becomes of an `array` of numbers whose smallest normal one is `tiny`, as an expression
SKEWS = {
    # the same values with gaps, or in another order in memory
    "strided": "np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2) if array.ndim > 1"
    " else np.repeat(array, 2)[::2]",
    "denormal": "array * (tiny / 8)",
    # one value in a hundred, the first among them
    "nan": "np.where(np.arange(array.size).reshape(array.shape) % 100 == 0, np.nan, array)",
    # all zero but the row in the middle
    "one_hot_row": "np.where(np.arange(len(array)).reshape(-1, *[1] * (array.ndim - 1)) == len(array) // 2, array, 0)",
    "sorted": "np.sort(array, axis=-1)",
    "reversed": "np.sort(array, axis=-1)[..., ::-1].copy()",
    "constant": "np.full_like(array, 0.5)",
}
ON_KINKS = ("denormal", "nan", "one_hot_row", "constant")  # a step to either side gives no gradient: 0, ties, no number
WHOLE = ("sorted", "reversed", "constant", "strided")  # skews that whole numbers can have, too


def takes(name: str, kind: str, shape: Shape, skew: str) -> bool:
    """Whether an input can have a skew; indices and masks stay as they are."""
    whole = kind.startswith(("int", "uint")) and name == "data" and skew in WHOLE
    return bool(shape) and (kind in ("float", "complex") if skew == "strided" else kind == "float" or whole)


def tiny(dtype: str) -> float:
    """The smallest normal number of a dtype; below it are the denormal ones.

    >>> tiny("float16"), tiny("bfloat16") == tiny("float32")
    (6.103515625e-05, True)
    """
    return float(np.finfo({"bfloat16": "float32"}.get(dtype, dtype)).tiny)


def skewed(array: Array, skew: str, dtype: str) -> Array:
    """An input of a dtype with the values or the layout of a skew."""
    changed: Array = eval(SKEWS[skew], {"np": np, "array": array, "tiny": tiny(dtype)})
    return changed if changed.dtype == array.dtype else changed.astype(array.dtype)


def _off_by_one(name: str, position: int, shape: Shape) -> Shape:
    return tuple(n + 1 if n > 1 else n for n in shape)


def _power_of_two(name: str, position: int, shape: Shape) -> Shape:
    return tuple(1 << (n - 1).bit_length() if n else 0 for n in shape)


def _broadcast(name: str, position: int, shape: Shape) -> Shape:
    return (1,) * (len(shape) - 1) + shape[-1:] if position else shape


# shapes: name -> what becomes of each shape
RESHAPES: Mapping[str, Callable[[str, int, Shape], Shape]] = {
    "off_by_one": _off_by_one,
    "power_of_two": _power_of_two,
    "broadcast": _broadcast,
}
ALL_SKEWS = (*SKEWS, *RESHAPES)


def check_kept(operator: Operator, skew: str) -> None:
    """Refuse values for an operator that writes over them: from its second call on it would compute with others."""
    writes = operator.name.startswith("inplace_") or operator.category == "optimiser"
    if writes and skew in SKEWS and skew != "strided":
        allowed = [one for one in ALL_SKEWS if one == "strided" or one in RESHAPES]
        raise Refused(f"{operator.name} writes over its inputs, and with that over the skew", got=skew, allowed=allowed)


def reshaped(inputs: Mapping[str, Input], skew: str) -> dict[str, Input]:
    """Inputs with the shapes of a skew; those of operators whose inputs differ in shape depend on one another."""
    if skew not in RESHAPES:
        return dict(inputs)
    if len({one.shape for one in inputs.values()}) != 1:
        raise Refused(f"the shapes of {', '.join(inputs)} depend on one another", got=skew, allowed=tuple(SKEWS))
    change = RESHAPES[skew]
    found = {
        name: replace(one, shape=change(name, position, one.shape))
        for position, (name, one) in enumerate(inputs.items())
    }
    if skew == "broadcast" and found == dict(inputs):  # a size that is a power of two already is one all the same
        raise Refused("this skew changes nothing here", got=skew)
    return found
