"""One device computes while the next phases are loaded in the background."""

from __future__ import annotations

from tessera.phased.schedules.one_device import OneDevice
from tessera.phased.schedules.schedule import Setup


class Overlapped(OneDevice):
    """Two or three buffers: one is computed from, the others are on their way or there already."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._stream = setup.stream()

    def acquire(self, phase: int) -> int:
        assert self._stream is not None, "a phase that does not stay comes from the stream"
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
