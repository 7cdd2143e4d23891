"""What conversions keep of a value."""

from __future__ import annotations

from typing import Any

import numpy as np

from tessera.operators.arrays import Array


def identity(data: Array) -> Array:
    """The values themselves, where a conversion changes only how they are kept."""
    return data


def conj(data: Array) -> Array:
    """The conjugate, where an operator only notes that it is to be taken."""
    return np.conj(data)


def quantised(data: Array, scale: Any, zero_point: Any) -> Array:
    """The nearest value that eight signed bits hold with this step and zero, ties to even."""
    steps = np.clip(np.rint(data / scale) + zero_point, -128, 127)
    return np.asarray((steps - zero_point) * scale)
