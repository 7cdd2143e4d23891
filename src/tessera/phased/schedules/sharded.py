"""The schedule `sharded`: with D devices, phase i stays on device i mod D, and mini-batches move between devices."""

from __future__ import annotations

import threading

from tessera.phased.devices.process import DeviceProcess
from tessera.phased.devices.threads import DeviceThreads
from tessera.phased.memory.activations import Values
from tessera.phased.schedules.schedule import ScheduleSetup


class Sharded:
    """The schedule on device threads. With several mini-batches in a step, the devices compute concurrently."""

    def __init__(self, setup: ScheduleSetup) -> None:
        self.setup = setup
        self._activations = setup.build_activations()
        self._changed = threading.Condition()
        self._done: list[int] = []  # number of phases computed, for each mini-batch
        self._failed = False
        self._devices = [setup.build_device(number) for number in range(setup.devices)]
        self._threads = DeviceThreads(setup.devices, setup.threads, pin=setup.pin)

    def run(self, batches: list[Values]) -> list[Values]:
        self._activations.begin_step(batches)
        self._done, self._failed = [0] * len(batches), False
        try:
            shares = [(number,) for number in range(self.setup.devices)]
            for future in self._threads.run_on_all(self._compute_share, shares, self._abort):
                future.result()
            return self._activations.end()
        except BaseException:
            self._activations.drop()
            raise

    def close(self) -> None:
        self._threads.close()

    def _compute_share(self, number: int) -> None:
        """Compute the phases of one device for every mini-batch, in the order of phase number + mini-batch number."""
        phases = self.setup.phases
        try:
            for diagonal in range(len(self._done) + len(phases)):
                for phase in phases[number :: self.setup.devices]:
                    batch = diagonal - phase
                    if 0 <= batch < len(self._done) and self._wait_for_batch(batch, phase):
                        self._devices[number].compute(phase, None, self._activations, [batch])
                        with self._changed:
                            self._done[batch] += 1
                            self._changed.notify_all()
        except BaseException:
            self._abort()
            raise

    def _abort(self) -> None:
        """Wake the devices that wait for a mini-batch, after a device has failed."""
        with self._changed:
            self._failed = True
            self._changed.notify_all()

    def _wait_for_batch(self, batch: int, phase: int) -> bool:
        """Wait until a mini-batch has reached a phase; return False if the step failed."""
        with self._changed:
            self._changed.wait_for(lambda: self._failed or self._done[batch] == phase)
            return not self._failed


def run_process_step(device: DeviceProcess, values: list[Values]) -> None:
    """Run one step on a device process: each mini-batch is one phase behind the mini-batch before it."""
    phases = range(device.phases)
    for diagonal in range(len(phases) + len(values) - 1):
        for phase in phases[device.number :: device.count]:
            if 0 <= diagonal - phase < len(values):
                device.compute(phase, None, [values[diagonal - phase]])
        device.wait_for_others(min(diagonal, phases[-1]))
