"""The traced engine: phases as programs that torch.fx has traced, which can run in device processes.

`PhasedModel` uses it for what requires activations apart from the network's Python: device processes, and activations
that go through a scratch file.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import torch
from torch import nn

from tessera.errors import TesseraError
from tessera.launch import LaunchConfig
from tessera.phased.devices.process_pool import open_processes
from tessera.phased.events import EventTimeline
from tessera.phased.memory.activations import ScratchSpace
from tessera.phased.memory.mapped import open_reader
from tessera.phased.memory.working import WorkingMemory
from tessera.phased.network.programs import PhasedNetwork
from tessera.phased.plan import PhasingRequest, plan_memory
from tessera.phased.schedules.schedule import PhaseSchedule, ScheduleSetup
from tessera.phased.store.reader import ReadConfig
from tessera.phased.store.weights_file import describe_arithmetic, get_compute_dtype
from tessera.phased.weights import open_weights


class TracedEngine:
    """A traced network that runs in phases on device threads, or with `launch` on device processes."""

    def __init__(
        self,
        model: nn.Module,
        request: PhasingRequest,
        timeline: EventTimeline,
        scratch: ScratchSpace,
        resources: ExitStack,
        *,
        path: Path | None,
        directory: Path | None,
        checksums: bool,
        threads: int,
        pin: bool,
        launch: LaunchConfig | None,
    ) -> None:
        self.store, partition = open_weights(model, request, path=path, directory=directory, checksums=checksums)
        resources.callback(self.store.close)
        plan = plan_memory(partition, request, self.store.file.tensors)
        stored = {tensor.name: tensor for layout in plan.layouts for tensor, _ in layout.places}
        dtypes = [tensor.dtype for tensor in stored.values()]
        self.plan = plan
        self.weight_bytes = sum(tensor.nbytes for tensor in stored.values())
        self.arithmetic = describe_arithmetic(dtypes)
        self.network = PhasedNetwork(
            skeleton=partition.skeleton,
            graph=partition.graph,
            parts=tuple(partition.parts),
            widen=any(get_compute_dtype(dtype) != dtype for dtype in dtypes),
        )
        gc.collect(1)  # tracing leaves reference cycles of several megabytes
        config = ReadConfig(
            file=self.store.file,
            direct=request.cold,
            checksums=checksums,
            mapped=request.store.mapped,
            compute_cores=request.cores,
            largest_phase=max(layout.nbytes for layout in plan.layouts),
        )
        if launch is not None:
            run_step = resolve_name(str(request.schedule.process_step))
            self._schedule: PhaseSchedule | None = open_processes(
                self.network, plan, run_step, config=config, timeline=timeline, launch=launch
            )
        else:
            reader = open_reader(config)
            resources.callback(reader.close)
            memory = WorkingMemory(plan.division, plan.layouts, plan.names, reader)
            memory.load_resident()
            setup = ScheduleSetup(
                network=self.network,
                layouts=plan.layouts,
                memory=memory,
                reader=reader,
                timeline=timeline,
                devices=request.devices,
                threads=threads,
                scratch=scratch,
                pin=pin,
            )
            self._schedule = resolve_name(request.schedule.implementation)(setup)
        resources.callback(self._schedule.close)

    def run(self, calls: Sequence[tuple[tuple[Any, ...], Mapping[str, Any]]]) -> list[Any]:
        """Return the outputs for several mini-batches, given as arguments and keyword arguments."""
        if torch.is_autocast_enabled("cpu"):  # autocast would affect the devices of some schedules only
            raise TesseraError(
                "device processes and `activations` do not support torch.autocast",
                do="disable autocast, or store weights in 16 bits: dtype='bfloat16'",
            )
        assert self._schedule is not None
        outputs = self._schedule.run([self.network.bind_arguments(args, kwargs) for args, kwargs in calls])
        return [self.network.build_result(values) for values in outputs]

    def release(self) -> None:
        """Free the working memory of a closed engine."""
        self._schedule = None
