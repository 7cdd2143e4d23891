"""What a schedule is given, and what it has to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tessera.phased.devices.device import Device
from tessera.phased.events import Timeline
from tessera.phased.memory.activations import Activations, Scratch, Values
from tessera.phased.memory.stream import WeightStream
from tessera.phased.memory.working import WorkingMemory
from tessera.phased.network.network import Network
from tessera.phased.store.layout import Layout
from tessera.phased.store.reader import Reader


class Schedule(Protocol):
    """Passes mini-batches through all phases. A pass that fails leaves it ready for the next."""

    def run(self, batches: list[Values]) -> list[Values]:
        """The values after the last phase, for the values before the first."""

    def close(self) -> None:
        """End its threads and processes; what it waits for is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What every schedule works with; `scratch` is for activations that are streamed as well.

    With `pin` every device that is a thread has cores of its own.
    """

    network: Network
    layouts: Sequence[Layout]
    memory: WorkingMemory
    reader: Reader
    timeline: Timeline
    devices: int
    threads: int
    scratch: Scratch
    pin: bool

    @property
    def phases(self) -> range:
        return range(len(self.layouts))

    def device(self, number: int = 0) -> Device:
        return Device(number, self.network.programs(), self.memory, self.timeline)

    def activations(self, shares: int = 1) -> Activations:
        return Activations(self.scratch, shares)

    def stays(self, phase: int) -> bool:
        return phase in self.memory.resident

    def stream(self, users: int = 1) -> WeightStream | None:
        """A stream of the phases that do not stay; None where all of them do."""
        order = [phase for phase in self.phases if not self.stays(phase)]
        if not order:
            return None
        layouts = dict(enumerate(self.layouts))
        return WeightStream(self.reader, order, layouts, self.memory.buffers, self.timeline, users=users)
