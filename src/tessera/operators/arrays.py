"""The NumPy array type of this package, and a function that flattens nested results into arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def flatten_outputs(result: Any) -> tuple[Array, ...]:
    """Return all arrays of a result of nested lists and tuples, in order; None is skipped."""
    if isinstance(result, list | tuple):
        return tuple(array for part in result for array in flatten_outputs(part))
    return () if result is None else (np.asarray(result),)
