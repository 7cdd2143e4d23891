"""Images: resizing, the input format of a network, and generated random images.

Generated images differ from one another about as much as photographs. A network gives nearly the same scores to every
image of white noise, so white noise cannot show whether two engines agree. A generated image therefore belongs to one
of 32 kinds, each with its own coarse shapes and colours, and differs from other images of its kind in brightness,
contrast and pixel noise."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import cycle
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]  # any shape and dtype
Layout = Literal["NCHW", "NHWC"]  # memory layout of a batch of images


# Mean and standard deviation of ImageNet pixels by channel, as fractions of 255; published weights assume them.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_DEVIATION = (0.229, 0.224, 0.225)
DEFAULT_MEAN, DEFAULT_DEVIATION = 0.5, 0.25  # for networks whose number of input channels is not 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PixelFormat:
    """The input format of an engine: channels, dtype, and the place of normalisation.

    `normalised_on` is `host` (pixels are normalised before the engine gets them), `device` (the network normalises), or
    `none` (the network gets pixel values from 0 to 255).
    """

    channels: int
    dtype: str
    normalised_on: str

    def compute_scale_and_shift(self) -> tuple[Array, Array]:
        """Return the scale and the shift of each channel that normalise a pixel (0 to 255): pixel * scale + shift."""
        known = self.channels == len(IMAGENET_MEAN)
        mean = np.array(IMAGENET_MEAN if known else [DEFAULT_MEAN] * self.channels, np.float32)
        deviation = np.array(IMAGENET_DEVIATION if known else [DEFAULT_DEVIATION] * self.channels, np.float32)
        return 1 / (255 * deviation), -mean / deviation

    def convert(self, raw: Array, out: Array) -> None:
        """Convert the batch `raw` (uint8, N x C x H x W) to the input format and write it to `out`."""
        if self.normalised_on != "host":
            np.copyto(out, raw, casting="unsafe")
            return
        scale, shift = (part.reshape(1, -1, 1, 1) for part in self.compute_scale_and_shift())
        wide = out if out.dtype == np.float32 else np.empty_like(out, np.float32)
        np.multiply(raw, scale, out=wide, dtype=np.float32, casting="unsafe")
        np.add(wide, shift, out=out, casting="unsafe")

    def generate_batch(self, count: int, image_shape: tuple[int, int, int], *, seed: int) -> Array:
        """Generate images (see `generate_images`) in the input format."""
        raw = generate_images(count, image_shape, seed=seed)
        out = np.empty(raw.shape, self.dtype)
        self.convert(raw, out)
        return out


CENTRE_CROP_FRACTION = 224 / 256  # side of the crop over the shorter side of the image, as in ImageNet evaluation


@lru_cache(maxsize=32)
def compute_resize_weights(before: int, after: int, first: int = 0, count: int | None = None) -> Array:
    """Return the matrix of interpolation weights that resizes a row from `before` to `after` pixels.

    Interpolation is linear, with antialiasing if the row shrinks. Only `count` rows of the matrix from `first` on are
    computed, because the whole matrix of a very long image would not fit into memory.

    >>> compute_resize_weights(4, 2).round(3)
    array([[0.429, 0.429, 0.143, 0.   ],
           [0.   , 0.143, 0.429, 0.429]], dtype=float32)
    """
    scale = before / after
    reach = max(scale, 1.0)
    centres = (np.arange(first, after if count is None else first + count) + 0.5) * scale
    distances = np.abs(np.arange(before) + 0.5 - centres[:, None])
    weights = np.maximum(0, 1 - distances / reach)
    normalised: Array = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    normalised.setflags(write=False)  # callers share the cached array
    return normalised


def crop_and_resize(image: Array, height: int, width: int) -> Array:
    """Resize an image (height x width x channels, uint8) and crop its centre."""
    rows, columns, _ = image.shape
    scale = max(height / rows, width / columns) / CENTRE_CROP_FRACTION
    tall, wide = max(height, round(rows * scale)), max(width, round(columns * scale))
    top, left = (tall - height) // 2, (wide - width) // 2
    down, across = compute_resize_weights(rows, tall, top, height), compute_resize_weights(columns, wide, left, width)
    narrowed = np.tensordot(down, image.astype(np.float32), axes=(1, 0))
    scaled = np.tensordot(narrowed, across, axes=(1, 1)).transpose(0, 2, 1)
    return np.clip(np.rint(scaled), 0, 255).astype(np.uint8)


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
        contrast = rng.uniform(1 - CONTRAST_VARIATION, 1 + CONTRAST_VARIATION)
        brightness = rng.uniform(-BRIGHTNESS_VARIATION, BRIGHTNESS_VARIATION)
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
