"""Images made smaller or larger: every pixel a weighted mean of those that it covers."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tessera.inference.arrays import Array

KEPT = 224 / 256  # of the shorter side, as networks for ImageNet are tested


@lru_cache(maxsize=32)
def interpolation(before: int, after: int, first: int = 0, count: int | None = None) -> Array:
    """The weights that turn `before` pixels in a row into `after`: linear, over a wider stretch where it gets smaller.

    Of these `count` from the `first` on: of a long strip the others would not fit into memory.

    >>> interpolation(4, 2).round(3)
    array([[0.429, 0.429, 0.143, 0.   ],
           [0.   , 0.143, 0.429, 0.429]], dtype=float32)
    """
    scale = before / after
    reach = max(scale, 1.0)
    centres = (np.arange(first, after if count is None else first + count) + 0.5) * scale
    distances = np.abs(np.arange(before) + 0.5 - centres[:, None])
    weights = np.maximum(0, 1 - distances / reach)
    found: Array = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    found.setflags(write=False)  # it is kept for the next image of this size
    return found


def fitted(image: Array, height: int, width: int) -> Array:
    """The middle of an image (height x width x channels, uint8), scaled so that little is cut off."""
    rows, columns, _ = image.shape
    scale = max(height / rows, width / columns) / KEPT
    tall, wide = max(height, round(rows * scale)), max(width, round(columns * scale))
    top, left = (tall - height) // 2, (wide - width) // 2
    down, across = interpolation(rows, tall, top, height), interpolation(columns, wide, left, width)
    narrowed = np.tensordot(down, image.astype(np.float32), axes=(1, 0))
    scaled = np.tensordot(narrowed, across, axes=(1, 1)).transpose(0, 2, 1)
    return np.clip(np.rint(scaled), 0, 255).astype(np.uint8)
