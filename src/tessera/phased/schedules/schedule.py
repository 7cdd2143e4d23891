"""The protocol of a schedule, and the objects that every schedule works with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tessera.phased.devices.device import PhaseDevice
from tessera.phased.events import EventTimeline
from tessera.phased.memory.activations import Activations, ScratchSpace, Values
from tessera.phased.memory.stream import WeightStream
from tessera.phased.memory.working import WorkingMemory
from tessera.phased.network.programs import PhasedNetwork
from tessera.phased.store.layout import PhaseLayout
from tessera.phased.store.reader import PhaseReader


class PhaseSchedule(Protocol):
    """Protocol of a schedule, which computes all phases for mini-batches; a failed pass does not affect the next one.

    A class in `SCHEDULES` is called with a `ScheduleSetup`.
    """

    def run(self, batches: list[Values]) -> list[Values]:
        """Compute all phases, and return the output values of each mini-batch for its input values."""

    def close(self) -> None:
        """End threads and processes, and stop loading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSetup:
    """Arguments of a schedule: the network, its working memory and its devices.

    `scratch` stores activations beyond their memory limit. With `pin`, every device thread has cores of its own.
    """

    network: PhasedNetwork
    layouts: Sequence[PhaseLayout]
    memory: WorkingMemory
    reader: PhaseReader
    timeline: EventTimeline
    devices: int
    threads: int
    scratch: ScratchSpace
    pin: bool

    @property
    def phases(self) -> range:
        return range(len(self.layouts))

    def build_device(self, number: int = 0) -> PhaseDevice:
        return PhaseDevice(number, self.network.build_programs(), self.memory, self.timeline)

    def build_activations(self, shares: int = 1) -> Activations:
        return Activations(self.scratch, shares)

    def is_resident(self, phase: int) -> bool:
        return phase in self.memory.resident

    def open_stream(self, users: int = 1) -> WeightStream | None:
        """Return a stream of the phases that are not resident; None if all phases are resident."""
        order = [phase for phase in self.phases if not self.is_resident(phase)]
        if not order:
            return None
        layouts = dict(enumerate(self.layouts))
        return WeightStream(self.reader, order, layouts, self.memory.buffers, self.timeline, users=users)
