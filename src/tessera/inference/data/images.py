"""Generated random images that differ from one another about as much as photographs.

A network gives nearly the same scores to every image of white noise, so white noise cannot show whether two engines
agree. A generated image therefore belongs to one of 32 kinds, each with its own coarse shapes and colours, and differs
from other images of its kind in brightness, contrast and pixel noise.
"""

from __future__ import annotations

from itertools import cycle

import numpy as np

from tessera.inference.arrays import Array, Layout
from tessera.inference.data.pixels import compute_resize_weights

IMAGE_KINDS = 32  # number of kinds
# Grids that are interpolated over the image: points per side, and amplitude in units of 1/255.
TINT_GRID, COARSE_GRID, FINE_GRID = (1, 40.0), (3, 45.0), (12, 30.0)
# Variation within a kind; brightness and noise in units of 1/255.
CONTRAST_VARIATION, BRIGHTNESS_VARIATION, PIXEL_NOISE = 0.05, 4.0, 3.0


def get_image_kinds(count: int) -> Array:
    """Return the kinds of `count` consecutive images; kinds repeat cyclically."""
    return np.arange(count) % IMAGE_KINDS


def generate_images(count: int, shape: tuple[int, int, int], *, seed: int) -> Array:
    """Generate `count` uint8 images of a shape (channels, height, width); equal seeds give equal images."""
    channels, height, width = shape
    rng = np.random.default_rng([1, seed])
    kinds = get_image_kinds(count)
    patterns = {int(kind): _draw_pattern(int(kind), shape) for kind in set(kinds)}
    images = np.empty((count, *shape), np.uint8)
    for image, kind in zip(images, kinds, strict=True):
        contrast, brightness = (
            rng.uniform(1 - CONTRAST_VARIATION, 1 + CONTRAST_VARIATION),
            rng.uniform(-BRIGHTNESS_VARIATION, BRIGHTNESS_VARIATION),
        )
        grain = rng.standard_normal((channels, height, width), dtype=np.float32)
        drawn = 128 + brightness + contrast * patterns[int(kind)] + PIXEL_NOISE * grain
        image[:] = np.clip(drawn, 0, 255).astype(np.uint8)
    return images


def _draw_pattern(kind: int, shape: tuple[int, int, int]) -> Array:
    """Return the zero-centred pattern of a kind; it does not depend on the seed of the images."""
    channels, height, width = shape
    rng = np.random.default_rng([0, kind])
    pattern = np.zeros(shape, np.float32)
    for points, strength in (TINT_GRID, COARSE_GRID, FINE_GRID):
        grid = rng.standard_normal((channels, points, points)).astype(np.float32)
        pattern += strength * (compute_resize_weights(points, height) @ grid @ compute_resize_weights(points, width).T)
    return pattern


DISTINCT_BATCHES = 2  # number of batches to cycle through; more would only use memory


class GeneratedImages:
    """An image source that alternates two generated batches, in the memory layout of decoded image files."""

    def __init__(self, batch_size: int, image_shape: tuple[int, int, int], layout: Layout, *, seed: int) -> None:
        images = generate_images(DISTINCT_BATCHES * batch_size, image_shape, seed=seed)
        if layout == "NHWC":
            images = np.ascontiguousarray(images.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
        self._batches = cycle(np.split(images, DISTINCT_BATCHES))

    def read_batch(self) -> Array:
        return next(self._batches)

    def notes(self) -> tuple[str, ...]:
        return ()

    def close(self) -> None:
        pass
