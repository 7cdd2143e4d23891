"""The schedule `phased`: the devices alternate. While one device computes a phase, another loads the next phase."""

from __future__ import annotations

import threading
import time

from tessera.phased.devices.process import DeviceProcess
from tessera.phased.devices.threads import DeviceThreads
from tessera.phased.events import Event
from tessera.phased.memory.activations import Values
from tessera.phased.schedules.schedule import ScheduleSetup


class Alternating:
    """The schedule on device threads. Each device has one buffer, and either loads into it or computes from it.

    Turns are counted over all passes: with P phases and D devices, turn t computes phase t mod P on device t mod D. The
    devices therefore also alternate between the last phase of a pass and the first phase of the next pass.
    """

    def __init__(self, setup: ScheduleSetup) -> None:
        self.setup = setup
        self._activations = setup.build_activations()
        self._batches = 0
        self._changed = threading.Condition()
        self._turn = 0  # the turn that is computed now or next
        self._until = 0  # the first turn that no pass has requested
        self._handed_over = 0.0  # time when the last turn ended
        self._error: BaseException | None = None
        self._closed = False
        self._devices = [setup.build_device(number) for number in range(setup.devices)]
        self._threads = DeviceThreads(setup.devices, setup.threads, pin=setup.pin)
        for number in range(setup.devices):
            self._threads.submit(number, self._run_device, number)

    def run(self, batches: list[Values]) -> list[Values]:
        self._activations.begin_step(batches)
        self._batches = len(batches)
        with self._changed:
            self._error = None
            self._until = self._turn + len(self.setup.phases)
            self._handed_over = time.perf_counter()
            self._changed.notify_all()
            try:
                self._changed.wait_for(lambda: self._turn == self._until)
            except BaseException:  # interrupted (Ctrl-C): wait until the devices have finished the pass
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

    def _run_device(self, number: int) -> None:
        """Load and compute the phases of one device until the schedule is closed."""
        turn = number
        while not self._closed:
            phase = turn % len(self.setup.phases)
            error: BaseException | None = None
            loaded: Event | None = None
            try:
                if not self.setup.is_resident(phase):
                    loaded = self._load_phase(number, phase)
            except BaseException as raised:  # the pass that needs this phase raises it
                error = raised
            since = time.perf_counter()
            if not self._wait_for_turn(turn):
                return
            if error is None and self._turn == turn:
                try:
                    self._record_events(number, phase, loaded, since)
                    buffer = None if loaded is None else number
                    self._devices[number].compute(phase, buffer, self._activations, range(self._batches))
                except BaseException as raised:
                    error = raised
            turn = self._end_turn(turn, error)

    def _load_phase(self, number: int, phase: int) -> Event:
        layout = self.setup.layouts[phase]
        start = time.perf_counter()
        self.setup.reader.read(layout, self.setup.memory.buffers[number].memory)
        stop = time.perf_counter()
        return Event(device=number, phase=phase, kind="load", start=start, stop=stop, bytes=layout.stored_bytes)

    def _wait_for_turn(self, turn: int) -> bool:
        """Wait until a turn is due or was skipped after a failure; return False if the schedule is closed."""

        def is_due() -> bool:
            return self._closed or self._turn > turn or (self._turn == turn and turn < self._until)

        with self._changed:
            self._changed.wait_for(is_due)
            return not self._closed

    def _end_turn(self, turn: int, error: BaseException | None) -> int:
        """End a turn and return the next turn of this device; an error skips the rest of the pass."""
        with self._changed:
            if self._turn == turn:
                self._error = error
                self._turn = turn + 1 if error is None else self._until
                self._handed_over = time.perf_counter()
                self._changed.notify_all()
            while turn < self._turn:
                turn += self.setup.devices
            return turn

    def _record_events(self, number: int, phase: int, loaded: Event | None, since: float) -> None:
        """Record load, wait and hand-over of a phase; a load in advance is recorded in the pass that uses the phase."""
        now = time.perf_counter()
        handed = min(max(self._handed_over, since), now)
        timeline = self.setup.timeline
        if loaded is not None:
            timeline.add(loaded)
        timeline.add(Event(device=number, phase=phase, kind="wait", start=since, stop=handed))
        nbytes = self._activations.nbytes
        timeline.add(Event(device=number, phase=phase, kind="hand-over", start=handed, stop=now, bytes=nbytes))


def run_process_step(device: DeviceProcess, values: list[Values]) -> None:
    """Run one step on a device process: compute a phase while another device loads the next phase, and vice versa."""
    for turn in range(-1, device.phases):
        if turn >= 0 and turn % device.count == device.number:
            device.compute(turn, 0, values)
        if (turn + 1) % device.count == device.number and turn + 1 < device.phases:
            device.load(turn + 1)
        device.wait_for_others(max(turn, 0))
