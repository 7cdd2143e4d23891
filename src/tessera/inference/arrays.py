"""Types of the arrays that the input pipeline passes to an engine."""

from __future__ import annotations

from typing import Any, Literal

from numpy.typing import NDArray

Array = NDArray[Any]  # any shape and dtype
Layout = Literal["NCHW", "NHWC"]  # memory layout of a batch of images
