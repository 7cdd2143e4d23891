"""The weights of a network as an endless stream of phases, a few of them loaded ahead of who computes with them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tessera.errors import TesseraError
from tessera.phased.events import Event, Timeline
from tessera.phased.memory.arena import Region
from tessera.phased.store.layout import Layout
from tessera.phased.store.reader import Loading, Reader


class StreamOver(TesseraError):
    """Nothing comes any more, because the stream was closed or another user of it failed."""


@dataclass(slots=True)
class _Ahead:
    """A phase that is in a buffer, or on its way there."""

    buffer: int
    loading: Loading
    users: int
    seen: bool = field(default=False)


class WeightStream:
    """Loads phases in turn into buffers, round and round: each as soon as a buffer is free.

    Who computes calls `acquire`, which waits for the phase, and `release`, which gives its buffer to the next one.
    After the last phase comes the first again, so that the next pass finds it loaded. With several `users` a buffer is
    free when each of them has released it. An error of a read is raised by `acquire`.
    """

    def __init__(
        self,
        reader: Reader,
        order: Sequence[int],
        layouts: Mapping[int, Layout],
        buffers: Sequence[Region],
        timeline: Timeline,
        *,
        users: int = 1,
    ) -> None:
        assert len(buffers) <= len(order), "no phase is in two buffers"
        self._reader, self._order, self._layouts, self._buffers = reader, order, layouts, buffers
        self._timeline, self._users = timeline, users
        self._changed = threading.Condition()
        self._ahead: dict[int, _Ahead] = {}
        self._free = deque(range(len(buffers)))
        self._next = 0
        self._over = False
        with self._changed:
            self._fill()

    def acquire(self, phase: int, device: int = 0) -> int:
        """Wait until a phase is loaded, and give the number of the buffer that it is in."""
        asked = time.perf_counter()
        with self._changed:
            self._changed.wait_for(lambda: phase in self._ahead or self._over)
            if self._over:
                raise StreamOver("the stream of weights is over", do="make a new PhasedModel")
            ahead = self._ahead[phase]
        ahead.loading.wait()
        came = time.perf_counter()
        with self._changed:
            first, ahead.seen = not ahead.seen, True
        loading = ahead.loading
        if first:
            self._timeline.add(
                Event(device=0, phase=phase, kind="load", start=loading.start, stop=loading.stop, bytes=loading.nbytes)
            )
        if loading.stop > asked:
            self._timeline.add(Event(device=device, phase=phase, kind="wait", start=asked, stop=came))
        return ahead.buffer

    def release(self, phase: int) -> None:
        """Say that a phase is no longer computed with; its buffer goes to the next phase when all have said so."""
        with self._changed:
            ahead = self._ahead[phase]
            ahead.users -= 1
            if ahead.users == 0:
                del self._ahead[phase]
                self._free.append(ahead.buffer)
                self._fill()

    def give_up(self) -> None:
        """Wake all who wait: a phase that they wait for may never come. Nothing is loaded until it is rewound."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def rewind(self) -> None:
        """Begin again with the first phase, after a pass that was broken off. Nobody may be computing."""
        with self._changed:
            self._over = False
            for ahead in self._ahead.values():
                ahead.loading.settle()
            self._ahead.clear()
            self._free = deque(range(len(self._buffers)))
            self._next = 0
            self._fill()

    def close(self) -> None:
        """Stop loading; when this returns, nothing is written into the buffers any more."""
        with self._changed:
            self._over = True
            for ahead in self._ahead.values():
                ahead.loading.settle()
            self._changed.notify_all()

    def _fill(self) -> None:
        """Start to load the next phases into the buffers that are free."""
        while self._free and not self._over:
            phase = self._order[self._next % len(self._order)]
            buffer = self._free.popleft()
            loading = self._reader.start(self._layouts[phase], self._buffers[buffer].memory)
            self._ahead[phase] = _Ahead(buffer, loading, self._users)
            self._next += 1
        self._changed.notify_all()
