"""The stream of weights: phases loaded into a few buffers in cyclic order, ahead of the computation."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tessera.errors import TesseraError
from tessera.phased.events import Event, EventTimeline
from tessera.phased.memory.arena import MemoryRegion
from tessera.phased.store.layout import PhaseLayout
from tessera.phased.store.reader import PhaseLoad, PhaseReader


class StreamClosed(TesseraError):
    """Error: the stream delivers no more phases, because it was closed or another of its users failed."""


@dataclass(slots=True)
class _BufferedPhase:
    """A phase in a buffer, loaded or being loaded."""

    buffer: int
    loading: PhaseLoad
    users: int
    recorded: bool = field(default=False)


class WeightStream:
    """A background loader that loads phases into buffers in cyclic order, each as soon as a buffer is free.

    A device calls `acquire`, which waits for a phase, and `release`, which frees its buffer. After the last
    phase, the first phase is loaded again, in advance of the next pass. With several `users`, a buffer is free when all
    users have released it. `acquire` raises the error of a read that failed.
    """

    def __init__(
        self,
        reader: PhaseReader,
        order: Sequence[int],
        layouts: Mapping[int, PhaseLayout],
        buffers: Sequence[MemoryRegion],
        timeline: EventTimeline,
        *,
        users: int = 1,
    ) -> None:
        assert len(buffers) <= len(order), "a phase is in one buffer at most"
        self._reader, self._order, self._layouts, self._buffers = reader, order, layouts, buffers
        self._timeline, self._users = timeline, users
        self._changed = threading.Condition()
        self._buffered: dict[int, _BufferedPhase] = {}
        self._free = deque(range(len(buffers)))
        self._next = 0
        self._closed = False
        with self._changed:
            self._fill_buffers()

    def acquire(self, phase: int, device: int = 0) -> int:
        """Wait until a phase is loaded, and return the number of its buffer."""
        requested = time.perf_counter()
        with self._changed:
            self._changed.wait_for(lambda: phase in self._buffered or self._closed)
            if self._closed:
                raise StreamClosed("the stream of weights is closed", do="create a new PhasedModel")
            buffered = self._buffered[phase]
        buffered.loading.wait()
        arrived = time.perf_counter()
        with self._changed:
            first, buffered.recorded = not buffered.recorded, True
        loading = buffered.loading
        if first:
            self._timeline.add(
                Event(device=0, phase=phase, kind="load", start=loading.start, stop=loading.stop, bytes=loading.nbytes)
            )
        if loading.stop > requested:
            self._timeline.add(Event(device=device, phase=phase, kind="wait", start=requested, stop=arrived))
        return buffered.buffer

    def release(self, phase: int) -> None:
        """Release a computed phase; when all users have released it, its buffer is free for the next load."""
        with self._changed:
            buffered = self._buffered[phase]
            buffered.users -= 1
            if buffered.users == 0:
                del self._buffered[phase]
                self._free.append(buffered.buffer)
                self._fill_buffers()

    def abort(self) -> None:
        """Wake all waiting users with an error, because a failed user may block the stream; stop until `rewind`."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def rewind(self) -> None:
        """Start again at the first phase, after a pass that failed. No user may be computing."""
        with self._changed:
            self._closed = False
            for buffered in self._buffered.values():
                buffered.loading.cancel()
            self._buffered.clear()
            self._free = deque(range(len(self._buffers)))
            self._next = 0
            self._fill_buffers()

    def close(self) -> None:
        """Stop loading. After the return, nothing is written into the buffers."""
        with self._changed:
            self._closed = True
            for buffered in self._buffered.values():
                buffered.loading.cancel()
            self._changed.notify_all()

    def _fill_buffers(self) -> None:
        """Start to load the next phases into the free buffers."""
        while self._free and not self._closed:
            phase = self._order[self._next % len(self._order)]
            buffer = self._free.popleft()
            loading = self._reader.start_read(self._layouts[phase], self._buffers[buffer].memory)
            self._buffered[phase] = _BufferedPhase(buffer, loading, self._users)
            self._next += 1
        self._changed.notify_all()
