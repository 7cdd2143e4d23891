"""Special functions that SciPy lacks: Chebyshev polynomials of the third and fourth kind, from their definition."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def chebyshev_v(data: Floats, n: int) -> Floats:
    """Of the third kind: cos((n + 1/2) t) / cos(t / 2) where data is cos(t), inside (-1, 1)."""
    angle = np.arccos(data)
    return np.asarray(np.cos((n + 0.5) * angle) / np.cos(angle / 2))


def chebyshev_w(data: Floats, n: int) -> Floats:
    """Of the fourth kind: sin((n + 1/2) t) / sin(t / 2) where data is cos(t), inside (-1, 1)."""
    angle = np.arccos(data)
    return np.asarray(np.sin((n + 0.5) * angle) / np.sin(angle / 2))
