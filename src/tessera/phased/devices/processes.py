"""The schedules `phased` and `sharded` with devices that are processes, each pinned to cores of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tessera.errors import BenchmarkFailed, TesseraError
from tessera.launch import LaunchConfig, Workers
from tessera.phased.choices import HOLD_ALL
from tessera.phased.devices.process import Blueprint
from tessera.phased.devices.shared_values import Table, table_of
from tessera.phased.events import Timeline
from tessera.phased.memory.activations import Values
from tessera.phased.memory.budget import Division
from tessera.phased.memory.working import wide_bytes
from tessera.phased.network.network import Network
from tessera.phased.plan import Asked, Plan
from tessera.phased.store.layout import Layout
from tessera.phased.store.reader import Reading
from tessera.transport.memory import Memory

PROCESS = "tessera.phased.devices.process"


def divided(division: Division, layouts: Sequence[Layout], schedule: str, devices: int) -> tuple[Division, ...]:
    """The working memory of each device, of that of all of them."""
    if schedule not in HOLD_ALL:
        return (replace(division, buffers=1, areas=min(division.areas, 1)),) * devices
    found = []
    for number in range(devices):
        own = tuple(range(number, len(layouts), devices))
        sizes = [wide_bytes([t for t, _ in layouts[phase].places]) or layouts[phase].nbytes for phase in own]
        found.append(replace(division, resident=own, resident_bytes=sum(sizes)))
    return tuple(found)


def open_processes(
    network: Network, plan: Plan, asked: Asked, *, reading: Reading, timeline: Timeline, launch: LaunchConfig
) -> DeviceProcesses:
    """Start the devices of a schedule, one worker each."""
    programs = network.programs()
    blueprint = Blueprint(
        schedule=asked.schedule,
        modules=tuple(program.module for program in programs),
        borders=tuple(program.border for program in programs),
        layouts=plan.layouts,
        names=plan.names,
        divisions=divided(plan.division, plan.layouts, asked.schedule, asked.devices),
        path=reading.file.path,
        direct=reading.direct,
        checksums=reading.checksums,
        mapped=reading.mapped,
    )
    return DeviceProcesses(network, blueprint, timeline, launch)


class DeviceProcesses:
    """Sends every device its part of the network once, and then mini-batches through memory that all of them map.

    A device that dies, or is killed, is an error of the step that it was in; the others are ended as well. The next
    step starts new ones.
    """

    def __init__(self, network: Network, blueprint: Blueprint, timeline: Timeline, launch: LaunchConfig) -> None:
        self._network, self._blueprint, self._timeline = network, blueprint, timeline
        self._workers = Workers(launch)
        self._workers.job = None  # devices belong to this process, whatever job it is a rank of
        self._prepared = False
        self._tables: dict[tuple[object, ...], Table] = {}
        self._memory: Memory | None = None
        self._workers.__enter__()
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def run(self, batches: list[Values]) -> list[Values]:
        table = self._table(batches)
        memory = self._room(table.nbytes * len(batches))
        for number, values in enumerate(batches):
            for name, place in table.places.items():
                if name in values:
                    place.view(memory.tensor, number * table.nbytes).copy_(values[name])
        self._step(memory.address, table, len(batches))
        return [self._results(memory, table, number) for number in range(len(batches))]

    def close(self) -> None:
        self._workers.__exit__(None)
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def _room(self, nbytes: int) -> Memory:
        """Memory for the values of a step: that of the last one if it is large enough, for fresh pages cost time."""
        if self._memory is None or self._memory.address.size < nbytes:
            if self._memory is not None:
                self._memory.close()
            self._memory = Memory(max(1, nbytes))
        return self._memory

    def _prepare(self) -> None:
        self._on_devices("prepare", self._blueprint)

    def _step(self, *args: object) -> None:
        if not self._prepared:
            self._prepare()
        for events in self._on_devices("step", *args):
            self._timeline.extend(events)

    def _on_devices(self, function: str, *args: object) -> list[Any]:
        self._prepared = False  # what fails may end the processes
        try:
            found = self._workers.run(f"{PROCESS}:{function}", *args)
        except BenchmarkFailed as error:
            raise BenchmarkFailed(f"a device failed: {error}", do="call again: new ones are started") from None
        self._prepared = True
        return found

    def _table(self, batches: list[Values]) -> Table:
        """Where the values of a mini-batch lie; all of a step have to be alike."""
        kinds = {tuple((name, _kind(value)) for name, value in values.items()) for values in batches}
        if len(kinds) > 1:
            raise TesseraError("device processes take mini-batches of one shape in a step", do="use workers threads")
        [kind] = kinds
        _check_apart(batches)
        if kind not in self._tables:
            self._tables[kind] = table_of(self._network, self._blueprint.layouts, self._blueprint.names, batches[0])
        return self._tables[kind]

    def _results(self, memory: Memory, table: Table, number: int) -> Values:
        found: Values = dict(table.constants)
        for name in self._network.results:
            if name in table.places:
                found[name] = table.places[name].view(memory.tensor, number * table.nbytes).clone()
        return found


def _kind(value: object) -> object:
    """What decides about the shapes of all that is computed from a value."""
    if isinstance(value, Tensor):
        return tuple(value.shape), value.stride(), value.dtype
    return repr(value) if not isinstance(value, torch.Size) else tuple(value)


def _check_apart(batches: list[Values]) -> None:
    """Refuse two inputs in the same memory: of what is written into one, the other would see nothing."""
    for values in batches:
        seen: dict[int, str] = {}
        for name, value in values.items():
            if isinstance(value, Tensor) and value.numel():
                other = seen.setdefault(value.untyped_storage().data_ptr(), name)
                if other != name:
                    raise TesseraError(
                        f"{other} and {name} are in the same memory, which processes do not share",
                        do="use workers threads, or pass a copy",
                    )
