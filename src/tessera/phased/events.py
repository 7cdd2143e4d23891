"""Events of a pass: the activities of each device with their times. Imports no torch."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

EventKind = Literal["load", "compute", "hand-over", "wait"]
EVENT_KINDS: tuple[EventKind, ...] = ("load", "compute", "hand-over", "wait")
MAX_EVENTS = 1 << 17  # since the last `drain`


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One activity of a device, with times of `time.perf_counter`, which all processes of a host share.

    `bytes` is the number of bytes loaded or handed over. Loads of a background stream may overlap: the reads of the
    next phase begin before the last read of the current phase has ended.
    """

    device: int
    phase: int
    kind: EventKind
    start: float
    stop: float
    bytes: int = 0

    @property
    def seconds(self) -> float:
        return self.stop - self.start


class EventTimeline:
    """Collects events from any thread; keeps the last `MAX_EVENTS` events."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)
        self._lock = threading.Lock()

    def add(self, event: Event) -> None:
        with self._lock:
            self._events.append(event)

    def extend(self, events: Iterable[Event]) -> None:
        with self._lock:
            self._events.extend(events)

    @contextmanager
    def record_span(self, device: int, phase: int, kind: EventKind, nbytes: int = 0) -> Iterator[None]:
        """Record the time of the block as an event, unless the block raises an error."""
        start = time.perf_counter()
        yield
        self.add(
            Event(device=device, phase=phase, kind=kind, start=start, stop=time.perf_counter(), bytes=nbytes),
        )

    def drain(self) -> list[Event]:
        """Return all events in the order of their start, and remove them."""
        with self._lock:
            events = list(self._events)
            self._events.clear()
        return sorted(events, key=lambda event: (event.start, event.stop))
