"""What conversions keep of a value."""

from __future__ import annotations

from typing import Any

import numpy as np


def identity(data: np.ndarray) -> np.ndarray:
    """The values themselves, where a conversion changes only how they are kept."""
    return data


def conj(data: np.ndarray) -> np.ndarray:
    """The conjugate, where an operator only notes that it is to be taken."""
    return np.conj(data)


def quantised(data: np.ndarray, scale: Any, zero_point: Any) -> np.ndarray:
    """The nearest value that eight signed bits hold with this step and zero, ties to even."""
    steps = np.clip(np.rint(data / scale) + zero_point, -128, 127)
    return np.asarray((steps - zero_point) * scale)
