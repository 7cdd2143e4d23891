"""The device process, worker side: its setup, and the operations of a step.

The schedule's `process_step` calls the operations. In every turn, some devices compute and others load; a barrier ends
the turn, so a turn takes as long as its slowest device.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import fx

from tessera.launch.worker import Worker
from tessera.phased.devices.device import PhaseDevice
from tessera.phased.devices.shared_values import SharedValueTable
from tessera.phased.events import Event, EventTimeline
from tessera.phased.memory.activations import Activations, ScratchSpace, Values
from tessera.phased.memory.budget import MemoryDivision
from tessera.phased.memory.mapped import open_reader
from tessera.phased.memory.working import WorkingMemory
from tessera.phased.network.programs import PhaseBoundary, PhaseProgram
from tessera.phased.store.layout import PhaseLayout
from tessera.phased.store.reader import ReadConfig
from tessera.phased.store.weights_file import WeightsFile
from tessera.transport.shared_memory import SharedMemoryAddress, map_shared_memory


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceBlueprint:
    """The setup sent once to every device process; `divisions` holds the division of each device's working memory.

    `run_step` is the schedule's function that runs a step on a device.
    """

    run_step: Callable[[DeviceProcess, list[Values]], None]
    modules: tuple[fx.GraphModule, ...]
    boundaries: tuple[PhaseBoundary, ...]
    layouts: tuple[PhaseLayout, ...]
    names: tuple[tuple[str, ...], ...]
    divisions: tuple[MemoryDivision, ...]
    path: Path
    direct: bool
    checksums: bool
    mapped: bool


class DeviceProcess:
    """The device of this process: device `number` of `count` devices, for a network of `phases` phases."""

    def __init__(self, worker: Worker, blueprint: DeviceBlueprint) -> None:
        self._worker, self._blueprint = worker, blueprint
        self.number, self.count, self.phases = worker.rank, worker.size, len(blueprint.layouts)
        self._timeline = EventTimeline()
        self._reader = open_reader(
            ReadConfig(
                file=WeightsFile(blueprint.path),
                direct=blueprint.direct,
                checksums=blueprint.checksums,
                mapped=blueprint.mapped,
                largest_phase=max(layout.nbytes for layout in blueprint.layouts),
            )
        )
        division = blueprint.divisions[worker.rank]
        self._memory = WorkingMemory(division, blueprint.layouts, blueprint.names, self._reader)
        self._memory.load_resident()
        programs = [
            PhaseProgram(module, boundary)
            for module, boundary in zip(blueprint.modules, blueprint.boundaries, strict=True)
        ]
        self._device = PhaseDevice(worker.rank, programs, self._memory, self._timeline)
        self._known: tuple[SharedMemoryAddress, SharedValueTable, int] | None = None
        self._values: list[Values] = []

    def run_step(self, address: SharedMemoryAddress, table: SharedValueTable, batches: int) -> list[Event]:
        """Compute the phases of this device for the mini-batches in shared memory, and return the recorded events."""
        if self._known != (address, table, batches):
            memory = map_shared_memory(address)
            self._values = [_view_values(memory, table, batch) for batch in range(batches)]
            self._known = (address, table, batches)
        self._blueprint.run_step(self, self._values)
        return self._timeline.drain()

    def load(self, phase: int) -> None:
        """Load a phase into the buffer of this device."""
        layout = self._blueprint.layouts[phase]
        with self._timeline.record_span(self.number, phase, "load", layout.stored_bytes):
            self._reader.read(layout, self._memory.buffers[0].memory)

    def compute(self, phase: int, buffer: int | None, values: list[Values]) -> None:
        """Compute a phase from a buffer (None: from resident weights), and write its outputs to shared memory."""
        activations = Activations(ScratchSpace())
        boundary = self._blueprint.boundaries[phase]
        activations.begin_step([{name: shared[name] for name in boundary.inputs} for shared in values])
        self._device.compute(phase, buffer, activations, range(len(values)))
        start, copied_bytes = time.perf_counter(), 0
        with torch.no_grad():
            for shared, outputs in zip(values, activations.end(), strict=True):
                for name in boundary.outputs:
                    if isinstance(outputs[name], torch.Tensor):
                        shared[name].copy_(outputs[name])
                        copied_bytes += outputs[name].nbytes
        stop = time.perf_counter()
        event = Event(device=self.number, phase=phase, kind="hand-over", start=start, stop=stop, bytes=copied_bytes)
        self._timeline.add(event)

    def wait_for_others(self, phase: int) -> None:
        """Wait until all devices have finished the turn, and record the waiting time as an event of `phase`."""
        with self._timeline.record_span(self.number, phase, "wait"):
            self._worker.sync.barrier()


_current_device: list[DeviceProcess] = []  # the device of this process, after `prepare_device`


def prepare_device(worker: Worker, blueprint: DeviceBlueprint) -> None:
    """Set this process up as a device."""
    _current_device[:] = [DeviceProcess(worker, blueprint)]


def run_step(worker: Worker, address: SharedMemoryAddress, table: SharedValueTable, batches: int) -> list[Event]:
    """Run one step on the device of this process."""
    return _current_device[0].run_step(address, table, batches)


def _view_values(memory: mmap.mmap, table: SharedValueTable, batch: int) -> dict[str, Any]:
    """Return the values of a mini-batch as tensors in shared memory."""

    def view_flat(at: int, count: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.frombuffer(memory, dtype=dtype, offset=at, count=count)

    views = {name: slot.view(view_flat, batch * table.nbytes) for name, slot in table.slots.items()}
    return dict(table.constants) | views
