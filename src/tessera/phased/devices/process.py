"""One device as a process of its own: what it is sent once, and how it goes through a step together with the others.

The devices keep step by a barrier after every turn, as devices with a common clock would: a turn takes as long as its
computing or its loading, whichever is longer.
"""

from __future__ import annotations

import mmap
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import fx

from tessera.launch.worker import Worker
from tessera.phased.devices.device import Device
from tessera.phased.devices.shared_values import Table
from tessera.phased.events import Event, Timeline
from tessera.phased.memory.activations import Activations, Scratch, Values
from tessera.phased.memory.budget import Division
from tessera.phased.memory.mapped import open_reader
from tessera.phased.memory.working import WorkingMemory
from tessera.phased.network.programs import Border, Program
from tessera.phased.store.layout import Layout
from tessera.phased.store.reader import Reading
from tessera.phased.store.weights_file import WeightsFile
from tessera.transport.memory import Address, mapped


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """All that a device process has to know; `divisions` are of the working memory of each device."""

    schedule: str
    modules: tuple[fx.GraphModule, ...]
    borders: tuple[Border, ...]
    layouts: tuple[Layout, ...]
    names: tuple[tuple[str, ...], ...]
    divisions: tuple[Division, ...]
    path: Path
    direct: bool
    checksums: bool
    mapped: bool


class _Process:
    """The device of this process."""

    def __init__(self, worker: Worker, blueprint: Blueprint) -> None:
        self._worker, self._blueprint = worker, blueprint
        self._timeline = Timeline()
        self._reader = open_reader(
            Reading(
                file=WeightsFile(blueprint.path),
                direct=blueprint.direct,
                checksums=blueprint.checksums,
                mapped=blueprint.mapped,
                largest=max(layout.nbytes for layout in blueprint.layouts),
            )
        )
        division = blueprint.divisions[worker.rank]
        self._memory = WorkingMemory(division, blueprint.layouts, blueprint.names, self._reader)
        self._memory.load_resident()
        programs = [
            Program(module, border) for module, border in zip(blueprint.modules, blueprint.borders, strict=True)
        ]
        self._device = Device(worker.rank, programs, self._memory, self._timeline)
        self._known: tuple[Address, Table, int] | None = None
        self._values: list[Values] = []

    def step(self, address: Address, table: Table, batches: int) -> list[Event]:
        """Pass mini-batches, which lie in shared memory, through the phases that are this device's."""
        if self._known != (address, table, batches):
            memory = mapped(address)
            self._values = [_views(memory, table, batch) for batch in range(batches)]
            self._known = (address, table, batches)
        if self._blueprint.schedule == "phased":
            self._in_turns(self._values)
        else:
            self._along_diagonals(self._values)
        return self._timeline.take()

    def _in_turns(self, values: list[Values]) -> None:
        """Compute a phase while another device loads the next one, then change roles."""
        rank, devices, phases = self._worker.rank, self._worker.size, len(self._blueprint.layouts)
        for turn in range(-1, phases):
            if turn >= 0 and turn % devices == rank:
                self._compute(turn, 0, values)
            if (turn + 1) % devices == rank and turn + 1 < phases:
                layout = self._blueprint.layouts[turn + 1]
                with self._timeline.timed(rank, turn + 1, "load", layout.stored_bytes):
                    self._reader.read(layout, self._memory.buffers[0].memory)
            self._wait(max(turn, 0))

    def _along_diagonals(self, values: list[Values]) -> None:
        """Mini-batches follow one another through the devices, each a phase behind the one before it."""
        phases = range(len(self._blueprint.layouts))
        for diagonal in range(len(phases) + len(values) - 1):
            for phase in phases[self._worker.rank :: self._worker.size]:
                if 0 <= diagonal - phase < len(values):
                    self._compute(phase, None, [values[diagonal - phase]])
            self._wait(min(diagonal, phases[-1]))

    def _compute(self, phase: int, buffer: int | None, values: list[Values]) -> None:
        """Compute a phase, then put what others need of it into the memory that they share."""
        own = Activations(Scratch())
        border = self._blueprint.borders[phase]
        own.begin([{name: shared[name] for name in border.inputs} for shared in values])
        self._device.compute(phase, buffer, own, range(len(values)))
        start, moved = time.perf_counter(), 0
        with torch.no_grad():
            for shared, made in zip(values, own.end(), strict=True):
                for name in border.outputs:
                    if isinstance(made[name], torch.Tensor):
                        shared[name].copy_(made[name])
                        moved += made[name].nbytes
        stop = time.perf_counter()
        rank = self._worker.rank
        self._timeline.add(Event(device=rank, phase=phase, kind="hand-over", start=start, stop=stop, bytes=moved))

    def _wait(self, phase: int) -> None:
        with self._timeline.timed(self._worker.rank, phase, "wait"):
            self._worker.sync.barrier()


_here: list[_Process] = []


def prepare(worker: Worker, blueprint: Blueprint) -> None:
    """Make this process a device."""
    _here[:] = [_Process(worker, blueprint)]


def step(worker: Worker, address: Address, table: Table, batches: int) -> list[Event]:
    """One step of the device that this process is."""
    return _here[0].step(address, table, batches)


def _views(memory: mmap.mmap, table: Table, batch: int) -> dict[str, Any]:
    """The values of a mini-batch as tensors in shared memory."""

    def numbers(at: int, count: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.frombuffer(memory, dtype=dtype, offset=at, count=count)

    views = {name: place.view(numbers, batch * table.nbytes) for name, place in table.places.items()}
    return dict(table.constants) | views
