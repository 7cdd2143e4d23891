"""Device processes, caller side: started once, and given mini-batches through shared memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tessera.errors import BenchmarkFailed, TesseraError
from tessera.launch import LaunchConfig, Workers
from tessera.phased.devices.process import DeviceBlueprint, DeviceProcess
from tessera.phased.devices.shared_values import SharedValueTable, plan_shared_values
from tessera.phased.events import EventTimeline
from tessera.phased.memory.activations import Values
from tessera.phased.memory.budget import MemoryDivision
from tessera.phased.memory.working import compute_wide_bytes
from tessera.phased.network.programs import PhasedNetwork
from tessera.phased.plan import PhasePlan
from tessera.phased.store.layout import PhaseLayout
from tessera.phased.store.reader import ReadConfig
from tessera.transport.shared_memory import SharedMemory

PREPARE_FUNCTION = "tessera.phased.devices.process:prepare_device"
RUN_STEP_FUNCTION = "tessera.phased.devices.process:run_step"


def split_memory_division(
    division: MemoryDivision, layouts: Sequence[PhaseLayout], devices: int
) -> tuple[MemoryDivision, ...]:
    """Split the working memory among devices: one buffer per device, or the resident phases of each device."""
    if not division.resident:
        return (replace(division, buffers=1, areas=min(division.areas, 1)),) * devices
    divisions = []
    for number in range(devices):
        resident = tuple(range(number, len(layouts), devices))
        sizes = [
            compute_wide_bytes([t for t, _ in layouts[phase].places]) or layouts[phase].nbytes for phase in resident
        ]
        divisions.append(replace(division, resident=resident, resident_bytes=sum(sizes)))
    return tuple(divisions)


def open_processes(
    network: PhasedNetwork,
    plan: PhasePlan,
    run_step: Callable[[DeviceProcess, list[Values]], None],
    *,
    config: ReadConfig,
    timeline: EventTimeline,
    launch: LaunchConfig,
) -> DeviceProcesses:
    """Start one worker process for each device of a schedule; the workers call `run_step` for every step."""
    programs = network.build_programs()
    blueprint = DeviceBlueprint(
        run_step=run_step,
        modules=tuple(program.module for program in programs),
        boundaries=tuple(program.boundary for program in programs),
        layouts=plan.layouts,
        names=plan.names,
        divisions=split_memory_division(plan.division, plan.layouts, launch.workers),
        path=config.file.path,
        direct=config.direct,
        checksums=config.checksums,
        mapped=config.mapped,
    )
    return DeviceProcesses(network, blueprint, timeline, launch)


class DeviceProcesses:
    """A schedule whose devices are processes, which get the network once and mini-batches through shared memory.

    If a device process dies, the current step fails and the other processes are ended. The next step starts new
    processes.
    """

    def __init__(
        self, network: PhasedNetwork, blueprint: DeviceBlueprint, timeline: EventTimeline, launch: LaunchConfig
    ) -> None:
        self._network, self._blueprint, self._timeline = network, blueprint, timeline
        self._workers = Workers(launch)
        self._workers.job = None  # the device processes belong to this process only, even if it is a rank of an MPI job
        self._prepared = False
        self._tables: dict[tuple[object, ...], SharedValueTable] = {}
        self._memory: SharedMemory | None = None
        self._workers.__enter__()
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def run(self, batches: list[Values]) -> list[Values]:
        table = self._get_table(batches)
        memory = self._reserve_memory(table.nbytes * len(batches))
        for number, values in enumerate(batches):
            for name, slot in table.slots.items():
                if name in values:
                    slot.view(memory.view_tensor, number * table.nbytes).copy_(values[name])
        if not self._prepared:
            self._prepare()
        for events in self._call_devices(RUN_STEP_FUNCTION, memory.address, table, len(batches)):
            self._timeline.extend(events)
        return [self._read_results(memory, table, number) for number in range(len(batches))]

    def close(self) -> None:
        self._workers.__exit__(None)
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def _reserve_memory(self, nbytes: int) -> SharedMemory:
        """Return shared memory for the values of a step; the memory of the previous step is reused if large enough."""
        if self._memory is None or self._memory.address.size < nbytes:
            if self._memory is not None:
                self._memory.close()
            self._memory = SharedMemory(max(1, nbytes))
        return self._memory

    def _prepare(self) -> None:
        self._call_devices(PREPARE_FUNCTION, self._blueprint)

    def _call_devices(self, function: str, *args: object) -> list[Any]:
        self._prepared = False  # a failure may end the processes, which then need a new setup
        try:
            results = self._workers.run(function, *args)
        except BenchmarkFailed as error:
            raise BenchmarkFailed(
                f"a device failed: {error}", do="call again: new device processes are started"
            ) from None
        self._prepared = True
        return results

    def _get_table(self, batches: list[Values]) -> SharedValueTable:
        """Return the memory slots of the values of a mini-batch; all mini-batches of a step must have equal shapes."""
        signatures = {tuple((name, _get_signature(v)) for name, v in values.items()) for values in batches}
        if len(signatures) > 1:
            raise TesseraError(
                "workers='processes' requires mini-batches of equal shapes in a step", do="use workers='threads'"
            )
        [signature] = signatures
        _check_aliases(batches)
        if signature not in self._tables:
            blueprint = self._blueprint
            self._tables[signature] = plan_shared_values(self._network, blueprint.layouts, blueprint.names, batches[0])
        return self._tables[signature]

    def _read_results(self, memory: SharedMemory, table: SharedValueTable, number: int) -> Values:
        values: Values = dict(table.constants)
        for name in self._network.results:
            if name in table.slots:
                values[name] = table.slots[name].view(memory.view_tensor, number * table.nbytes).clone()
        return values


def _get_signature(value: object) -> object:
    """Return the properties of an input that decide the shapes of all values computed from it."""
    if isinstance(value, Tensor):
        return tuple(value.shape), value.stride(), value.dtype
    return repr(value) if not isinstance(value, torch.Size) else tuple(value)


def _check_aliases(batches: list[Values]) -> None:
    """Raise an error if two inputs share memory: in a device process, a write to one would not change the other."""
    for values in batches:
        owners: dict[int, str] = {}
        for name, value in values.items():
            if isinstance(value, Tensor) and value.numel():
                owner = owners.setdefault(value.untyped_storage().data_ptr(), name)
                if owner != name:
                    raise TesseraError(
                        f"inputs {owner} and {name} are in the same memory, which workers='processes' does not support",
                        do="use workers='threads', or pass a copy",
                    )
