"""Pixel arithmetic: resize images, and convert pixels (0 to 255) to the input format of a network."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tessera.inference.arrays import Array

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


CENTRE_CROP_FRACTION = (
    224 / 256
)  # side of the crop as a fraction of the shorter side of the image, as in ImageNet evaluation


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
