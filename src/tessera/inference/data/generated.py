"""Images that the host draws before the run; the run takes them through the whole input pipeline but for decoding."""

from __future__ import annotations

from itertools import cycle

import numpy as np

from tessera.inference.arrays import Array
from tessera.inference.data.images import drawn_images
from tessera.inference.engines.engine import Layout

BATCHES = 2  # unlike one another; more would only cost memory


class Generated:
    """Drawn images, batch after batch, over and over; they lie in memory as decoded files would for this layout."""

    def __init__(self, batch_size: int, image_shape: tuple[int, int, int], layout: Layout, *, seed: int) -> None:
        images = drawn_images(BATCHES * batch_size, image_shape, seed=seed)
        if layout == "NHWC":
            images = np.ascontiguousarray(images.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
        self._batches = cycle(np.split(images, BATCHES))

    def raw(self) -> Array:
        return next(self._batches)

    def notes(self) -> tuple[str, ...]:
        return ()

    def close(self) -> None:
        pass
