"""Phase i stays on device i modulo the devices; mini-batches follow one another from device to device."""

from __future__ import annotations

import threading

from tessera.phased.devices.threads import DeviceThreads
from tessera.phased.memory.activations import Values
from tessera.phased.schedules.schedule import Setup


class Sharded:
    """Nothing is streamed. With several mini-batches in a step, the devices compute at the same time."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self._activations = setup.activations()
        self._changed = threading.Condition()
        self._done: list[int] = []  # phases that each mini-batch has behind it
        self._failed = False
        self._devices = [setup.device(number) for number in range(setup.devices)]
        self._threads = DeviceThreads(setup.devices, setup.threads, pin=setup.pin)

    def run(self, batches: list[Values]) -> list[Values]:
        self._activations.begin(batches)
        self._done, self._failed = [0] * len(batches), False
        try:
            shares = [(number,) for number in range(self.setup.devices)]
            for future in self._threads.on_all(self._share, shares, self._give_up):
                future.result()
            return self._activations.end()
        except BaseException:
            self._activations.drop()
            raise

    def close(self) -> None:
        self._threads.close()

    def _share(self, number: int) -> None:
        """What one device does in a step: its phases, of every mini-batch, along the diagonals."""
        phases = self.setup.phases
        try:
            for diagonal in range(len(self._done) + len(phases)):
                for phase in phases[number :: self.setup.devices]:
                    batch = diagonal - phase
                    if 0 <= batch < len(self._done) and self._wait_for(batch, phase):
                        self._devices[number].compute(phase, None, self._activations, [batch])
                        with self._changed:
                            self._done[batch] += 1
                            self._changed.notify_all()
        except BaseException:
            self._give_up()
            raise

    def _give_up(self) -> None:
        """Wake all who wait for a mini-batch: it may never come."""
        with self._changed:
            self._failed = True
            self._changed.notify_all()

    def _wait_for(self, batch: int, phase: int) -> bool:
        """Wait until a mini-batch has come as far as a phase; False if it never will."""
        with self._changed:
            self._changed.wait_for(lambda: self._failed or self._done[batch] == phase)
            return not self._failed
