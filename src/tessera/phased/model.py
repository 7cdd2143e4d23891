"""`PhasedModel`: a torch network that runs with a bounded part of its weights in memory."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import nn

from tessera.errors import TesseraError
from tessera.launch import LaunchConfig
from tessera.measure.allocator import DEFAULT
from tessera.phased.choices import ON_PROCESSES, STORES, WORKERS, choose, compute_together, parse_bytes
from tessera.phased.devices.processes import open_processes
from tessera.phased.events import Event, Timeline
from tessera.phased.host import balance
from tessera.phased.memory.activations import Scratch
from tessera.phased.memory.mapped import open_reader
from tessera.phased.memory.working import WorkingMemory
from tessera.phased.network.network import Network
from tessera.phased.network.skeleton import skeleton_of
from tessera.phased.opening import open_weights
from tessera.phased.phase import Phase
from tessera.phased.plan import Asked, least_budget, plan_memory
from tessera.phased.schedules import open_schedule
from tessera.phased.schedules.schedule import Schedule, Setup
from tessera.phased.store.dtypes import arithmetic, computed_dtype
from tessera.phased.store.reader import Reading
from tessera.phased.store.weights_file import tensors_of

Shape = Sequence[int] | Sequence[Sequence[int]]


class PhasedModel:
    """Runs a network in phases: the weights of a phase are loaded when it is due, and the loading is hidden.

    `model` has its values, which are written to a store phase by phase, or is on the meta device, and `path` names a
    safetensors file with its weights; then they are never in memory as a whole. Outputs equal those of the plain model
    in evaluation mode; its weights may also be stored in 16 bits (`dtype`), and are computed with in float32 then.
    `weight_bytes` are all that are stored, tied ones once; `working_bytes` is the memory that they are given.

    `budget` bounds the working memory for weights; what it leaves beside the buffers keeps phases for good (unless
    `keep` is False, or devices are processes). `sharded` and `resident` hold all weights and are not bound by it.
    Phases are found by the budget and, if `input_shape` (of one batch, or of each input) is given, by the balance of
    loading and computing; or they begin at the modules named in `phases`, or numbered: calls of layers with weights are
    counted from 0. Activations that cross phases stay in memory up to `activations` bytes (None: all of them) and go
    through a scratch file beyond that.

    `store` is where the weights are: "disk", "host" (memory) or "mapped". Without a `path` the file on disk has no
    name, lies in `directory` and is gone with the process. `cold` reads past the system's page cache. `checksums` are
    verified on every load. With `pin` every device has cores of its own; those that are processes start with a setting
    of the C `allocator` (None: that of all workers). A model is closed by `close()` or by the end of a `with` block.
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
        self.schedule, self.devices = choose(schedule, devices)
        self.store, self.workers = store, workers
        self._check(cold, activations, path, directory)
        if allocator is not None and workers != "processes":
            raise TesseraError("threads share the allocator of this process", got=allocator, do="leave it out")
        folder = None if directory is None else Path(directory)
        self._scratch = Scratch(None if activations is None else parse_bytes(activations), folder)
        self._timeline = Timeline()
        self._one_call = threading.Lock()
        self.events: list[Event] = []
        per_device = _threads(threads, self.devices)
        computing = per_device * (self.devices if compute_together(self.schedule, 2) else 1)
        asked = Asked(
            schedule=self.schedule,
            devices=self.devices,
            areas=_areas(workers, self.devices),
            budget=self.budget,
            dtype=dtype,
            keep=keep and workers == "threads",
            mapped=store == "mapped",
            names=phases,
            shapes=None if input_shape is None else _shapes(input_shape),
            balance=lambda dtype: balance(store, cold=cold, dtype=dtype, cores=computing),
        )
        place = None if path is None else Path(path)
        with ExitStack() as opened:
            self._store, cut = open_weights(model, asked, store, path=place, directory=folder, checksums=checksums)
            opened.callback(self._store.close)
            plan = plan_memory(cut, asked, self._store.file.tensors)
            stored = {tensor.name: tensor for layout in plan.layouts for tensor, _ in layout.places}
            kinds = [tensor.dtype for tensor in stored.values()]
            self.phases: tuple[Phase, ...] = plan.phases
            self.weight_bytes = sum(tensor.nbytes for tensor in stored.values())
            self.working_bytes = plan.division.nbytes
            self.arithmetic = arithmetic(kinds)
            self._network = Network(
                skeleton=cut.skeleton,
                graph=cut.graph,
                parts=tuple(cut.parts),
                widen=any(computed_dtype(kind) != kind for kind in kinds),
            )
            gc.collect(1)  # tracing leaves megabytes of cycles behind
            reading = Reading(
                file=self._store.file,
                direct=cold,
                checksums=checksums,
                mapped=asked.mapped,
                computing=computing,
                largest=max(layout.nbytes for layout in plan.layouts),
            )
            self._schedule: Schedule | None
            if workers == "processes":
                launch = LaunchConfig(workers=self.devices, threads=per_device, pin=pin, allocator=allocator or DEFAULT)
                self._schedule = open_processes(
                    self._network,
                    plan,
                    asked,
                    reading=reading,
                    timeline=self._timeline,
                    launch=launch,
                )
            else:
                reader = open_reader(reading)
                opened.callback(reader.close)
                memory = WorkingMemory(plan.division, plan.layouts, plan.names, reader)
                memory.load_resident()
                setup = Setup(
                    network=self._network,
                    layouts=plan.layouts,
                    memory=memory,
                    reader=reader,
                    timeline=self._timeline,
                    devices=self.devices,
                    threads=per_device,
                    scratch=self._scratch,
                    pin=pin,
                )
                self._schedule = open_schedule(self.schedule, setup)
            opened.callback(self._schedule.close)
            self._closing = weakref.finalize(self, opened.pop_all().close)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The network's output for one batch."""
        return self._pass([self._network.bind(args, kwargs)])[0]

    def run(self, batches: Sequence[Any]) -> list[Any]:
        """The outputs for several mini-batches: all of them pass through a phase while its weights are there.

        A network with several inputs takes a tuple for each mini-batch.
        """
        return self._pass([self._network.bind(b if isinstance(b, tuple) else (b,), {}) for b in batches])

    def _pass(self, batches: list[dict[str, Any]]) -> list[Any]:
        if not batches:
            return []
        if torch.is_autocast_enabled("cpu"):  # it would reach the devices of some schedules only
            raise TesseraError(
                "phases are not computed under torch.autocast", do="leave it out, or store 16 bits: dtype="
            )
        with self._one_call:
            if self._schedule is None:
                raise TesseraError("this model is closed", do="make a new PhasedModel")
            try:
                found = self._schedule.run(batches)
            finally:
                self.events = self._timeline.take()
        return [self._network.result(values) for values in found]

    @property
    def stream_bytes(self) -> int:
        """Bytes of weights that one pass loads."""
        return sum(phase.bytes for phase in self.phases if not phase.resident)

    @property
    def scratch_bytes(self) -> int:
        """Bytes of activations that went through a scratch file so far, because they were beyond their limit."""
        return self._scratch.streamed_bytes

    @classmethod
    def least_budget(
        cls,
        model: nn.Module,
        *,
        schedule: str | None = None,
        devices: int | None = None,
        dtype: str | None = None,
        workers: str = "threads",
        path: Path | str | None = None,
    ) -> int:
        """The smallest budget, in bytes, with which a model can be run by a schedule; it may be on the meta device.

        `path` names the file of its weights where that is there already: one that others wrote may need more.
        """
        schedule, devices = choose(schedule, devices)
        return least_budget(
            skeleton_of(model),
            None if path is None else tensors_of(Path(path)),
            dtype=dtype,
            schedule=schedule,
            devices=devices,
            areas=_areas(workers, devices),
        )

    def drop_cache(self) -> None:
        """Make the next loads cold: forget what the system has cached of the file."""
        self._store.drop_cache()

    def close(self) -> None:
        """End threads and processes, free the memory, remove what was written without a name."""
        with self._one_call:
            self._closing()
            self._schedule = None  # and with it the working memory

    def __enter__(self) -> PhasedModel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check(
        self, cold: bool, activations: str | int | None, path: Path | str | None, directory: Path | str | None
    ) -> None:
        if self.store not in STORES:
            raise TesseraError("unknown store", got=self.store, allowed=STORES)
        if self.workers not in WORKERS:
            raise TesseraError("unknown kind of device", got=self.workers, allowed=WORKERS)
        if self.workers == "processes" and self.schedule not in ON_PROCESSES:
            raise TesseraError(
                "devices of this schedule are no processes", got=self.schedule, allowed=ON_PROCESSES, do="use threads"
            )
        if self.workers == "processes" and activations is not None:
            raise TesseraError("devices that are processes share activations in memory", do="leave `activations` out")
        if cold and self.store != "disk":
            raise TesseraError("only a file on disk can be read cold", got=self.store, do="use the store disk")
        if directory is not None and activations is None and (path is not None or self.store == "host"):
            raise TesseraError("nothing is written to `directory` here", got=str(directory), do="leave it out")


def _areas(workers: str, devices: int) -> int:
    """How many phases may have to be widened at a time: threads take turns, processes have memory of their own."""
    return devices if workers == "processes" else 1


def _shapes(shape: Shape) -> list[tuple[int, ...]]:
    if all(isinstance(size, int) for size in shape):
        return [tuple(shape)]  # type: ignore[arg-type]
    return [tuple(one) for one in shape]  # type: ignore[arg-type]


def _threads(asked: int | None, devices: int) -> int:
    if asked is not None and asked < 1:
        raise TesseraError("a device needs threads", got=asked, allowed="1 or more")
    if asked is None:
        return torch.get_num_threads() if devices == 1 else max(1, len(os.sched_getaffinity(0)) // devices)
    return asked
