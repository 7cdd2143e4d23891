"""Load a phase, then compute it: what streaming costs when nothing of it is hidden."""

from __future__ import annotations

from tessera.phased.schedules.one_device import OneDevice


class Sequential(OneDevice):
    """One buffer, and never anything loaded ahead."""

    def acquire(self, phase: int) -> int:
        layout = self.setup.layouts[phase]
        with self.setup.timeline.timed(0, phase, "load", layout.stored_bytes):
            self.setup.reader.read(layout, self.setup.memory.buffers[0].memory)
        return 0
