"""The input pipeline: convert images to the engine's input format, with or without prefetching."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import cycle
from threading import Lock
from typing import Any, Protocol

import numpy as np

from tessera.inference.data.images import Array, Layout, PixelFormat


class InputTarget(Protocol):
    """The part of the `Session` interface that the input feed uses: memory layout and conversion of a batch."""

    layout: Layout

    def prepare_input(self, batch: Array) -> Any:
        """Return the batch as the engine's own input tensor."""


class ImageSource(Protocol):
    """A source of image batches."""

    def read_batch(self) -> Array:
        """Return the next batch: uint8, shape N x C x H x W. The source does not modify the returned array."""

    def notes(self) -> tuple[str, ...]:
        """Return notes for the record, such as the number of broken files."""

    def close(self) -> None: ...


class InputFeed(Protocol):
    """The input of the timed loop."""

    def next_batch(self) -> Any:
        """Return the next batch as the input of `Session.run`."""

    def notes(self) -> tuple[str, ...]: ...

    def close(self) -> None: ...


class ResidentFeed:
    """A feed that always returns one fixed batch, so that input preparation is not timed."""

    def __init__(self, session: InputTarget, source: ImageSource, pixels: PixelFormat) -> None:
        raw = source.read_batch()
        self._batch = allocate_batch(raw.shape, pixels, session.layout)  # keeps the memory alive that the session reads
        pixels.convert(raw, self._batch)
        self._input = session.prepare_input(self._batch)
        source.close()

    def next_batch(self) -> Any:
        return self._input

    def notes(self) -> tuple[str, ...]:
        return ()

    def close(self) -> None:
        pass


class PipelineFeed:
    """A feed that converts the batches of a source into reused buffers.

    `threads` threads prefetch batches. With `threads` 0 a batch is prepared on request: lower throughput, but the
    shortest latency from image to result. A batch stays valid until `in_use` further batches were requested.
    """

    def __init__(
        self,
        session: InputTarget,
        source: ImageSource,
        pixels: PixelFormat,
        *,
        shape: tuple[int, ...],
        threads: int,
        in_use: int = 1,
    ) -> None:
        self._session, self._source, self._pixels = session, source, pixels
        self._source_lock = Lock()
        self._buffers = cycle([allocate_batch(shape, pixels, session.layout) for _ in range(2 * threads + in_use)])
        self._prefetched: deque[Future[Array]] = deque()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="input") if threads else None
        if self._pool is not None:
            self._prefetched.extend(self._submit() for _ in range(2 * threads))

    def next_batch(self) -> Any:
        if self._pool is None:
            return self._session.prepare_input(self._prepare(next(self._buffers)))
        batch = self._prefetched.popleft().result()
        self._prefetched.append(self._submit())
        return self._session.prepare_input(batch)

    def notes(self) -> tuple[str, ...]:
        return self._source.notes()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)  # running conversions finish first
        self._source.close()

    def _submit(self) -> Future[Array]:
        assert self._pool is not None
        return self._pool.submit(self._prepare, next(self._buffers))  # buffers are reused in the order of the batches

    def _prepare(self, batch: Array) -> Array:
        with self._source_lock:
            raw = self._source.read_batch()
        self._pixels.convert(raw, batch)
        return batch


def allocate_batch(shape: tuple[int, ...], pixels: PixelFormat, layout: Layout) -> Array:
    """Allocate a batch of shape N x C x H x W with the engine's memory layout.

    >>> allocate_batch((1, 3, 4, 4), PixelFormat(channels=3, dtype="uint8", normalised_on="none"), "NHWC").strides
    (48, 1, 12, 3)
    """
    n, c, h, w = shape
    if layout == "NHWC":
        return np.empty((n, h, w, c), pixels.dtype).transpose(0, 3, 1, 2)
    return np.empty((n, c, h, w), pixels.dtype)
