"""The type of NumPy's arrays, of any shape and dtype."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
