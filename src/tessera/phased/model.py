"""`PhasedModel`: a torch network that runs with a bounded part of its weights in memory."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from pkgutil import resolve_name
from types import TracebackType
from typing import Any

import torch
from torch import nn

from tessera.errors import TesseraError
from tessera.launch import LaunchConfig
from tessera.measure.allocator import DEFAULT_ALLOCATOR
from tessera.phased.choices import SCHEDULES, choose_schedule, get_store_traits, get_worker_traits, parse_bytes
from tessera.phased.devices.process_pool import open_processes
from tessera.phased.events import Event, EventTimeline
from tessera.phased.memory.activations import ScratchSpace
from tessera.phased.memory.mapped import open_reader
from tessera.phased.memory.working import WorkingMemory
from tessera.phased.network.programs import PhasedNetwork
from tessera.phased.network.skeleton import build_skeleton
from tessera.phased.plan import Phase, PhasePlan, PhasingRequest, compute_min_budget, plan_memory
from tessera.phased.schedules.schedule import PhaseSchedule, ScheduleSetup
from tessera.phased.store.reader import ReadConfig
from tessera.phased.store.weights_file import describe_arithmetic, get_compute_dtype, read_tensor_table
from tessera.phased.traits import ScheduleTraits, WeightStoreTraits, WorkerTraits
from tessera.phased.weights import open_weights

Shape = Sequence[int] | Sequence[Sequence[int]]


class PhasedModel:
    """A network that runs in phases: the weights of a phase are loaded while another phase is computed.

    Either `model` holds its weights, which are then written to a store phase by phase; or `model` is on the meta device
    and `path` names a safetensors file of its weights, which are then never in memory as a whole. Outputs equal the
    outputs of `model` in evaluation mode. Weights stored in 16 bits (`dtype`) are widened to float32 to compute.
    `weight_bytes` is the size of the stored weights, tied weights counted once; `working_bytes` is the working memory
    for weights.

    Args:
        budget: limit of the working memory for weights. Budget left over after the load buffers keeps some phases
            resident, unless `keep` is False or devices are processes. Schedules that hold all weights ignore the
            budget.
        phases: modules at which phases begin, or their numbers (calls of layers with weights, counted from 0).
            By default, phases are chosen by the budget and, if `input_shape` is given, by the balance of loading and
            computing.
        input_shape: shape of one batch, or of each input.
        store: "disk", "host" (memory) or "mapped". Without a `path`, the file on disk has no name, is in `directory`
            and is removed with the process.
        cold: read past the page cache of the system.
        checksums: verify checksums on every load.
        workers: "threads" or "processes".
        pin: give every device cores of its own.
        allocator: malloc setting of device processes (None: the setting of all workers).
        activations: bytes of activations that stay in memory between phases (None: all of them); the rest goes through
            a scratch file.

    Close a model by `close()` or by the end of a `with` block.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        budget: str | int = "256MB",
        devices: int | None = None,
        schedule: str | None = None,
        store: str = "disk",
        dtype: str | None = None,
        path: Path | str | None = None,
        phases: Sequence[str | int] | None = None,
        input_shape: Shape | None = None,
        cold: bool = False,
        checksums: bool = False,
        threads: int | None = None,
        workers: str = "threads",
        pin: bool = True,
        allocator: str | None = None,
        keep: bool = True,
        activations: str | int | None = None,
        directory: Path | str | None = None,
    ) -> None:
        self.budget = parse_bytes(budget)
        self.traits, self.devices = choose_schedule(schedule, devices)
        self.store, self.workers = store, workers
        processes = get_worker_traits(workers).separate_processes
        _check_options(
            self.traits,
            get_store_traits(store),
            get_worker_traits(workers),
            cold=cold,
            activations=activations,
            allocator=allocator,
            path=path,
            directory=directory,
        )
        folder = None if directory is None else Path(directory)
        self._scratch = ScratchSpace(None if activations is None else parse_bytes(activations), folder)
        self._timeline = EventTimeline()
        self._one_call = threading.Lock()
        self.events: list[Event] = []
        per_device = _choose_threads(threads, self.devices)
        cores = per_device * self.traits.count_computing_devices(self.devices, batches=2)
        request = PhasingRequest(
            schedule=self.traits,
            store=get_store_traits(store),
            devices=self.devices,
            cores=cores,
            areas=get_worker_traits(workers).count_widening_areas(self.devices),
            budget=self.budget,
            dtype=dtype,
            keep=keep and not processes,
            cold=cold,
            starts=phases,
            shapes=None if input_shape is None else _normalize_shapes(input_shape),
        )
        with ExitStack() as resources:
            weights_path = None if path is None else Path(path)
            self._store, partition = open_weights(
                model, request, path=weights_path, directory=folder, checksums=checksums
            )
            resources.callback(self._store.close)
            plan = plan_memory(partition, request, self._store.file.tensors)
            stored = {tensor.name: tensor for layout in plan.layouts for tensor, _ in layout.places}
            dtypes = [tensor.dtype for tensor in stored.values()]
            self.plan = plan
            self.phases: tuple[Phase, ...] = plan.phases
            self.weight_bytes = sum(tensor.nbytes for tensor in stored.values())
            self.working_bytes = plan.division.nbytes
            self.arithmetic = describe_arithmetic(dtypes)
            self._network = PhasedNetwork(
                skeleton=partition.skeleton,
                graph=partition.graph,
                parts=tuple(partition.parts),
                widen=any(get_compute_dtype(dtype) != dtype for dtype in dtypes),
            )
            gc.collect(1)  # tracing leaves reference cycles of several megabytes
            config = ReadConfig(
                file=self._store.file,
                direct=cold,
                checksums=checksums,
                mapped=request.store.mapped,
                compute_cores=cores,
                largest_phase=max(layout.nbytes for layout in plan.layouts),
            )
            if processes:
                launch = LaunchConfig(
                    workers=self.devices, threads=per_device, pin=pin, allocator=allocator or DEFAULT_ALLOCATOR
                )
                self._schedule: PhaseSchedule | None = self._open_processes(plan, config, launch)
            else:
                self._schedule = self._open_threads(plan, config, per_device, pin, resources)
            resources.callback(self._schedule.close)
            self._closing = weakref.finalize(self, resources.pop_all().close)

    def _open_processes(self, plan: PhasePlan, config: ReadConfig, launch: LaunchConfig) -> PhaseSchedule:
        run_step = resolve_name(str(self.traits.process_step))
        return open_processes(self._network, plan, run_step, config=config, timeline=self._timeline, launch=launch)

    def _open_threads(
        self, plan: PhasePlan, config: ReadConfig, threads: int, pin: bool, resources: ExitStack
    ) -> PhaseSchedule:
        reader = open_reader(config)
        resources.callback(reader.close)
        memory = WorkingMemory(plan.division, plan.layouts, plan.names, reader)
        memory.load_resident()
        setup = ScheduleSetup(
            network=self._network,
            layouts=plan.layouts,
            memory=memory,
            reader=reader,
            timeline=self._timeline,
            devices=self.devices,
            threads=threads,
            scratch=self._scratch,
            pin=pin,
        )
        schedule: PhaseSchedule = resolve_name(self.traits.implementation)(setup)
        return schedule

    @property
    def schedule(self) -> str:
        """The name of the schedule."""
        return self.traits.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the network's output for one batch."""
        return self._run_pass([self._network.bind_arguments(args, kwargs)])[0]

    def run(self, batches: Sequence[Any]) -> list[Any]:
        """Return the outputs for several mini-batches, which all pass through a phase before the next phase is loaded.

        A network with several inputs takes a tuple for each mini-batch.
        """
        return self._run_pass([self._network.bind_arguments(b if isinstance(b, tuple) else (b,), {}) for b in batches])

    def _run_pass(self, batches: list[dict[str, Any]]) -> list[Any]:
        if not batches:
            return []
        if torch.is_autocast_enabled("cpu"):  # autocast would affect the devices of some schedules only
            raise TesseraError(
                "PhasedModel does not support torch.autocast",
                do="disable autocast, or store weights in 16 bits: dtype='bfloat16'",
            )
        with self._one_call:
            if self._schedule is None:
                raise TesseraError("this model is closed", do="create a new PhasedModel")
            try:
                outputs = self._schedule.run(batches)
            finally:
                self.events = self._timeline.drain()
        return [self._network.build_result(values) for values in outputs]

    @property
    def widens_weights(self) -> bool:
        """Whether weights are stored in 16 bits and widened to float32 to compute."""
        return self._network.widen

    @property
    def stream_bytes(self) -> int:
        """Bytes of weights that one pass loads."""
        return sum(phase.bytes for phase in self.phases if not phase.resident)

    @property
    def scratch_bytes(self) -> int:
        """Bytes of activations written to the scratch file so far, beyond the limit in memory."""
        return self._scratch.streamed_bytes

    @classmethod
    def compute_min_budget(
        cls,
        model: nn.Module,
        *,
        schedule: str | None = None,
        devices: int | None = None,
        dtype: str | None = None,
        workers: str = "threads",
        path: Path | str | None = None,
    ) -> int:
        """Return the smallest budget in bytes with which a schedule can run a model.

        The model may be on the meta device. `path` names an existing file of its weights: a file written by another
        program may need a larger budget.
        """
        traits, devices = choose_schedule(schedule, devices)
        return compute_min_budget(
            build_skeleton(model),
            None if path is None else read_tensor_table(Path(path)),
            dtype=dtype,
            schedule=traits,
            devices=devices,
            areas=get_worker_traits(workers).count_widening_areas(devices),
        )

    def drop_cache(self) -> None:
        """Drop the weights file from the page cache, so that the next loads are cold."""
        self._store.drop_cache()

    def close(self) -> None:
        """End threads and processes, free the memory, and remove unnamed files."""
        with self._one_call:
            self._closing()
            self._schedule = None  # frees the working memory

    def __enter__(self) -> PhasedModel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _check_options(
    schedule: ScheduleTraits,
    store: WeightStoreTraits,
    workers: WorkerTraits,
    *,
    cold: bool,
    activations: str | int | None,
    allocator: str | None,
    path: Path | str | None,
    directory: Path | str | None,
) -> None:
    if workers.separate_processes and not schedule.supports_processes:
        supported = [name for name, traits in SCHEDULES.items() if traits.supports_processes]
        raise TesseraError(
            f"schedule {schedule.name!r} does not support workers={workers.name!r}",
            do=f"use workers='threads', or schedule {' or '.join(map(repr, supported))}",
        )
    if workers.separate_processes and activations is not None:
        raise TesseraError(
            f"`activations` is not supported with workers={workers.name!r}", do="leave `activations` out"
        )
    if allocator is not None and not workers.separate_processes:
        raise TesseraError("`allocator` requires workers='processes'", got=allocator, do="leave `allocator` out")
    if cold and not store.can_be_cold:
        raise TesseraError(f"store {store.name!r} cannot be read cold", do="use store='disk'")
    if directory is not None and activations is None and (path is not None or store.in_host_memory):
        raise TesseraError(
            "`directory` has no effect, because no file is written", got=str(directory), do="leave `directory` out"
        )


def _normalize_shapes(shape: Shape) -> list[tuple[int, ...]]:
    if all(isinstance(size, int) for size in shape):
        return [tuple(shape)]  # type: ignore[arg-type]
    return [tuple(sizes) for sizes in shape]  # type: ignore[arg-type]


def _choose_threads(threads: int | None, devices: int) -> int:
    if threads is not None and threads < 1:
        raise TesseraError("invalid number of threads", got=threads, allowed="1 or more")
    if threads is None:
        return torch.get_num_threads() if devices == 1 else max(1, len(os.sched_getaffinity(0)) // devices)
    return threads
