"""From the pixels of an image, 0 to 255, to the numbers that a network takes, and where that is done."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tessera.inference.arrays import Array

# of the pixels of ImageNet, as shares of 255, by channel: what published weights were trained with
MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)
OTHER_MEAN, OTHER_DEVIATION = 0.5, 0.25  # of networks that do not take three colours


@dataclass(frozen=True, slots=True, kw_only=True)
class Pixels:
    """How pixels cross to the engine: `element` is their type then, `normalised_on` who makes zero mean of them.

    Not normalised at all (`none`), a network gets the pixels as they are, 0 to 255.
    """

    channels: int
    element: str
    normalised_on: str

    def scale_and_shift(self) -> tuple[Array, Array]:
        """What a pixel of every channel is multiplied by, and what is added then."""
        known = self.channels == len(MEAN)
        mean = np.array(MEAN if known else [OTHER_MEAN] * self.channels, np.float32)
        deviation = np.array(DEVIATION if known else [OTHER_DEVIATION] * self.channels, np.float32)
        return 1 / (255 * deviation), -mean / deviation

    def converted(self, raw: Array, out: Array) -> None:
        """Write the pixels of a batch (uint8, N x C x H x W) as they cross to the engine."""
        if self.normalised_on != "host":
            np.copyto(out, raw, casting="unsafe")
            return
        scale, shift = (part.reshape(1, -1, 1, 1) for part in self.scale_and_shift())
        wide = out if out.dtype == np.float32 else np.empty_like(out, np.float32)
        np.multiply(raw, scale, out=wide, dtype=np.float32, casting="unsafe")
        np.add(wide, shift, out=out, casting="unsafe")
