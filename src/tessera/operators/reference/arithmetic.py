"""Arithmetic of three inputs, which NumPy writes in several steps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def addcmul(data: Floats, first: Floats, second: Floats, value: float) -> Floats:
    """A product, scaled and added."""
    return data + value * first * second


def addcdiv(data: Floats, first: Floats, second: Floats, value: float) -> Floats:
    """A quotient, scaled and added."""
    return data + value * first / second


def lerp(start: Floats, end: Floats, weight: Floats | float) -> Floats:
    """So much of the way from start to end."""
    return start + weight * (end - start)
