"""Images that are drawn rather than taken: random, and yet unlike one another as photographs are.

White noise looks the same to a network whatever its seed: every answer is nearly the same answer, and nothing can be
said about whether two engines give the same one. So an image is of one of a number of kinds, each with coarse shapes
and colours of its own, and differs from others of its kind in brightness, contrast and grain.
"""

from __future__ import annotations

import numpy as np

from tessera.inference.arrays import Array
from tessera.inference.data.resize import interpolation

KINDS = 32
# points of the grids, along each side, whose values are spread over the image, and how strong each is, of 255
TINT, COARSE, FINE = (1, 40.0), (3, 45.0), (12, 30.0)
CONTRAST, BRIGHTNESS, GRAIN = 0.05, 4.0, 3.0  # how far images of a kind differ; the last two of 255


def kinds_of(count: int, first: int = 0) -> Array:
    """The kind of each of so many images: one after the other, all over again."""
    return (first + np.arange(count)) % KINDS


def drawn_images(count: int, shape: tuple[int, int, int], *, seed: int) -> Array:
    """So many images of a shape (channels, height, width), uint8; equal seeds draw equal images."""
    channels, height, width = shape
    rng = np.random.default_rng([1, seed])
    kinds = kinds_of(count)
    patterns = {int(kind): _pattern(int(kind), shape) for kind in set(kinds)}
    images = np.empty((count, *shape), np.uint8)
    for image, kind in zip(images, kinds, strict=True):
        contrast, brightness = rng.uniform(1 - CONTRAST, 1 + CONTRAST), rng.uniform(-BRIGHTNESS, BRIGHTNESS)
        grain = rng.standard_normal((channels, height, width), dtype=np.float32)
        drawn = 128 + brightness + contrast * patterns[int(kind)] + GRAIN * grain
        image[:] = np.clip(drawn, 0, 255).astype(np.uint8)
    return images


def _pattern(kind: int, shape: tuple[int, int, int]) -> Array:
    """The shapes and colours of a kind, about zero: the same whatever else is drawn."""
    channels, height, width = shape
    rng = np.random.default_rng([0, kind])
    pattern = np.zeros(shape, np.float32)
    for points, strength in (TINT, COARSE, FINE):
        grid = rng.standard_normal((channels, points, points)).astype(np.float32)
        pattern += strength * (interpolation(points, height) @ grid @ interpolation(points, width).T)
    return pattern
