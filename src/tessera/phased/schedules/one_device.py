"""One device: `sequential`, `overlapped` and `resident` differ only in when a phase is loaded."""

from __future__ import annotations

import torch

from tessera.phased.memory.activations import Values
from tessera.phased.schedules.schedule import Setup


class OneDevice:
    """Computes in the calling thread, phase after phase."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self._device = setup.device()
        self._activations = setup.activations()

    def run(self, batches: list[Values]) -> list[Values]:
        before = torch.get_num_threads()
        torch.set_num_threads(self.setup.threads)
        self._activations.begin(batches)
        try:
            for phase in self.setup.phases:
                buffer = None if self.setup.stays(phase) else self.acquire(phase)
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
        """The buffer that a phase is in."""
        raise NotImplementedError

    def release(self, phase: int) -> None:
        """The phase is computed."""

    def recover(self) -> None:
        """A pass was broken off."""

    def close(self) -> None:
        return None
