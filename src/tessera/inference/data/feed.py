"""The input pipeline: images, made into what the engine takes, ahead of time unless prefetching is off."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import cycle
from threading import Lock
from typing import Any, Protocol

import numpy as np

from tessera.inference.arrays import Array
from tessera.inference.data.pixels import Pixels
from tessera.inference.engines.engine import Layout, Session


class Source(Protocol):
    """Where images come from."""

    def raw(self) -> Array:
        """The next batch: uint8, N x C x H x W in its shape; it is never written again."""
        ...

    def notes(self) -> tuple[str, ...]:
        """What is to be told of the images, such as files that are broken."""
        ...

    def close(self) -> None: ...


class Feed(Protocol):
    """What the loop that is timed asks for input. `resident`: it lies in the engine's memory and costs nothing."""

    resident: bool

    def next(self) -> Any:
        """The next batch as the session holds it, for `Session.run`."""
        ...

    def notes(self) -> tuple[str, ...]: ...

    def close(self) -> None: ...


class Resident:
    """One batch that is in the engine's memory already."""

    resident = True

    def __init__(self, session: Session, source: Source, pixels: Pixels) -> None:
        raw = source.raw()
        self._batch = buffer(raw.shape, pixels, session.layout)  # kept: the session reads its memory
        pixels.converted(raw, self._batch)
        self._held = session.input(self._batch)
        source.close()

    def next(self) -> Any:
        return self._held

    def notes(self) -> tuple[str, ...]:
        return ()

    def close(self) -> None:
        pass


class Pipeline:
    """Batches from a source, converted into buffers that are used in turn.

    With `threads`, so many prepare batches ahead of the one that is asked for. Without, a batch is prepared when it is
    asked for: less throughput, and the shortest time from image to answer. A batch stays as it is until `in_use` more
    were asked for.
    """

    resident = False

    def __init__(
        self, session: Session, source: Source, pixels: Pixels, *, shape: tuple[int, ...], threads: int, in_use: int = 1
    ) -> None:
        self._session, self._source, self._pixels = session, source, pixels
        self._taking = Lock()
        self._buffers = cycle([buffer(shape, pixels, session.layout) for _ in range(2 * threads + in_use)])
        self._ahead: deque[Future[Array]] = deque()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="input") if threads else None
        if self._pool is not None:
            self._ahead.extend(self._started() for _ in range(2 * threads))

    def next(self) -> Any:
        if self._pool is None:
            return self._session.input(self._prepared(next(self._buffers)))
        batch = self._ahead.popleft().result()
        self._ahead.append(self._started())
        return self._session.input(batch)

    def notes(self) -> tuple[str, ...]:
        return self._source.notes()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)  # what is under way is finished first
        self._source.close()

    def _started(self) -> Future[Array]:
        assert self._pool is not None
        return self._pool.submit(self._prepared, next(self._buffers))  # buffers go round in the order of the batches

    def _prepared(self, batch: Array) -> Array:
        with self._taking:
            raw = self._source.raw()
        self._pixels.converted(raw, batch)
        return batch


def buffer(shape: tuple[int, ...], pixels: Pixels, layout: Layout) -> Array:
    """Memory for a batch: N x C x H x W in its shape, in the layout of the engine in its memory.

    >>> buffer((1, 3, 4, 4), Pixels(channels=3, element="uint8", normalised_on="none"), "NHWC").strides
    (48, 1, 12, 3)
    """
    n, c, h, w = shape
    if layout == "NHWC":
        return np.empty((n, h, w, c), pixels.element).transpose(0, 3, 1, 2)
    return np.empty((n, c, h, w), pixels.element)
