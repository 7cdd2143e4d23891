"""The devices take turns: while one computes a phase, the next one loads the phase after it, then they change roles."""

from __future__ import annotations

import threading
import time

from tessera.phased.devices.threads import DeviceThreads
from tessera.phased.events import Event
from tessera.phased.memory.activations import Values
from tessera.phased.schedules.schedule import Setup


class Phased:
    """Each device has one buffer, into which it loads and from which it computes; it does one of the two at a time.

    Turns are counted over all passes: turn t computes phase t modulo the phases, on device t modulo the devices. So
    the devices go on to change roles between the last phase of a pass and the first of the next.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self._activations = setup.activations()
        self._batches = 0
        self._changed = threading.Condition()
        self._turn = 0  # whose computing is next, or under way
        self._until = 0  # turns up to here have been asked for
        self._handed_over = 0.0  # when the last turn ended
        self._error: BaseException | None = None
        self._closed = False
        self._devices = [setup.device(number) for number in range(setup.devices)]
        self._threads = DeviceThreads(setup.devices, setup.threads, pin=setup.pin)
        for number in range(setup.devices):
            self._threads.submit(number, self._serve, number)

    def run(self, batches: list[Values]) -> list[Values]:
        self._activations.begin(batches)
        self._batches = len(batches)
        with self._changed:
            self._error = None
            self._until = self._turn + len(self.setup.phases)
            self._handed_over = time.perf_counter()
            self._changed.notify_all()
            try:
                self._changed.wait_for(lambda: self._turn == self._until)
            except BaseException:  # interrupted: the devices come to rest first
                self._changed.wait_for(lambda: self._turn == self._until)
                self._activations.drop()
                raise
            if self._error is not None:
                self._activations.drop()
                raise self._error
        return self._activations.end()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._threads.close()

    def _serve(self, number: int) -> None:
        """The life of a device."""
        turn = number
        while not self._closed:
            phase = turn % len(self.setup.phases)
            error: BaseException | None = None
            loaded: Event | None = None
            try:
                if not self.setup.stays(phase):
                    loaded = self._load(number, phase)
            except BaseException as raised:  # is told when somebody waits for this phase
                error = raised
            since = time.perf_counter()
            if not self._wait_for(turn):
                return
            if error is None and self._turn == turn:
                try:
                    self._note(number, phase, loaded, since)
                    buffer = None if loaded is None else number
                    self._devices[number].compute(phase, buffer, self._activations, range(self._batches))
                except BaseException as raised:
                    error = raised
            turn = self._end(turn, error)

    def _load(self, number: int, phase: int) -> Event:
        layout = self.setup.layouts[phase]
        start = time.perf_counter()
        self.setup.reader.read(layout, self.setup.memory.buffers[number].memory)
        stop = time.perf_counter()
        return Event(device=number, phase=phase, kind="load", start=start, stop=stop, bytes=layout.stored_bytes)

    def _wait_for(self, turn: int) -> bool:
        """Wait until a turn has come, or was passed over in a pass that failed; False when all is over."""

        def come() -> bool:
            return self._closed or self._turn > turn or (self._turn == turn and turn < self._until)

        with self._changed:
            self._changed.wait_for(come)
            return not self._closed

    def _end(self, turn: int, error: BaseException | None) -> int:
        """Pass the turn on, and give this device's next one; an error passes over the rest of the pass."""
        with self._changed:
            if self._turn == turn:
                self._error = error
                self._turn = turn + 1 if error is None else self._until
                self._handed_over = time.perf_counter()
                self._changed.notify_all()
            while turn < self._turn:
                turn += self.setup.devices
            return turn

    def _note(self, number: int, phase: int, loaded: Event | None, since: float) -> None:
        """Note how the phase came here; its load counts to the pass that uses it, even if it was before."""
        now = time.perf_counter()
        handed = min(max(self._handed_over, since), now)
        timeline = self.setup.timeline
        if loaded is not None:
            timeline.add(loaded)
        timeline.add(Event(device=number, phase=phase, kind="wait", start=since, stop=handed))
        nbytes = self._activations.nbytes
        timeline.add(Event(device=number, phase=phase, kind="hand-over", start=handed, stop=now, bytes=nbytes))
