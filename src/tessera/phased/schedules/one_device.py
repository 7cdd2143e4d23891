"""Schedules of one device: `sequential`, `overlapped` and `resident`. They differ only in when phases are loaded."""

from __future__ import annotations

import torch

from tessera.phased.memory.activations import Values
from tessera.phased.schedules.schedule import ScheduleSetup


class OneDevice:
    """Base class that computes phase after phase in the calling thread; subclasses implement the loading."""

    def __init__(self, setup: ScheduleSetup) -> None:
        self.setup = setup
        self._device = setup.build_device()
        self._activations = setup.build_activations()

    def run(self, batches: list[Values]) -> list[Values]:
        before = torch.get_num_threads()
        torch.set_num_threads(self.setup.threads)
        self._activations.begin_step(batches)
        try:
            for phase in self.setup.phases:
                buffer = None if self.setup.is_resident(phase) else self.acquire(phase)
                self._device.compute(phase, buffer, self._activations, range(len(batches)))
                if buffer is not None:
                    self.release(phase)
            return self._activations.end()
        except BaseException:
            self._activations.drop()
            self.recover()
            raise
        finally:
            torch.set_num_threads(before)

    def acquire(self, phase: int) -> int:
        """Return the number of the buffer that holds a phase, after the phase is loaded."""
        raise NotImplementedError

    def release(self, phase: int) -> None:
        """Free the buffer of a phase that has been computed."""

    def recover(self) -> None:
        """Prepare for the next pass after a pass failed."""

    def close(self) -> None:
        return None


class Sequential(OneDevice):
    """The baseline schedule without overlap: loads a phase into the only buffer, then computes it."""

    def acquire(self, phase: int) -> int:
        layout = self.setup.layouts[phase]
        with self.setup.timeline.record_span(0, phase, "load", layout.stored_bytes):
            self.setup.reader.read(layout, self.setup.memory.buffers[0].memory)
        return 0


class Overlapped(OneDevice):
    """A schedule with two or three buffers: computes from one while a background stream fills the others."""

    def __init__(self, setup: ScheduleSetup) -> None:
        super().__init__(setup)
        self._stream = setup.open_stream()

    def acquire(self, phase: int) -> int:
        assert self._stream is not None, "only a phase that is not resident is acquired"
        return self._stream.acquire(phase)

    def release(self, phase: int) -> None:
        if self._stream is not None:
            self._stream.release(phase)

    def recover(self) -> None:
        if self._stream is not None:
            self._stream.rewind()

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()


class AllResident(OneDevice):
    """A schedule with all phases in memory, loaded once when the model is opened."""
