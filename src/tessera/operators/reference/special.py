"""Special functions that SciPy lacks: Chebyshev polynomials of the third and fourth kind, by their recurrence."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def chebyshev_v(data: Floats, n: int) -> Floats:
    """Of the third kind: 1, 2x - 1, and on."""
    return _chebyshev(data, 2 * data - 1, n)


def chebyshev_w(data: Floats, n: int) -> Floats:
    """Of the fourth kind: 1, 2x + 1, and on."""
    return _chebyshev(data, 2 * data + 1, n)


def _chebyshev(data: Floats, first: Floats, n: int) -> Floats:
    """All kinds have one recurrence, and differ in their polynomial of degree one."""
    below, found = np.ones_like(data), first
    for _ in range(n):
        below, found = found, 2 * data * found - below
    return below
