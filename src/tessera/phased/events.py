"""What a device did when: the events of a pass, from which a profile is drawn. Imports no torch."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

Kind = Literal["load", "compute", "hand-over", "wait"]
KINDS: tuple[Kind, ...] = ("load", "compute", "hand-over", "wait")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One stretch of a device's time, in seconds of `time.perf_counter`, which all processes of a host share.

    `bytes` are those that were loaded or handed over. Loads of a background stream may overlap one another: the reads
    of the next phase begin before the last read of this one has ended.
    """

    device: int
    phase: int
    kind: Kind
    start: float
    stop: float
    bytes: int = 0

    @property
    def seconds(self) -> float:
        return self.stop - self.start


class Timeline:
    """Collects events from any thread; `take` gives them in order of their start and begins anew."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._lock = threading.Lock()

    def add(self, event: Event) -> None:
        with self._lock:
            self._events.append(event)

    def extend(self, events: Iterable[Event]) -> None:
        with self._lock:
            self._events.extend(events)

    @contextmanager
    def timed(self, device: int, phase: int, kind: Kind, nbytes: int = 0) -> Iterator[None]:
        """Time what is done in the block, if it comes to its end."""
        start = time.perf_counter()
        yield
        self.add(
            Event(device=device, phase=phase, kind=kind, start=start, stop=time.perf_counter(), bytes=nbytes),
        )

    def take(self) -> list[Event]:
        with self._lock:
            found, self._events = self._events, []
        return sorted(found, key=lambda event: (event.start, event.stop))
