"""`PhasedModel`: a torch network that runs with a bounded part of its weights in memory."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import nn

from tessera.errors import TesseraError
from tessera.phased.choices import STORES, WORKERS, choose, parse_bytes
from tessera.phased.devices.processes import open_processes
from tessera.phased.events import Event, Timeline
from tessera.phased.memory.activations import Scratch
from tessera.phased.memory.mapped import open_reader
from tessera.phased.memory.working import WorkingMemory
from tessera.phased.network.cutting import BALANCE
from tessera.phased.network.network import Network
from tessera.phased.network.skeleton import Skeleton, skeleton_of, weights_of
from tessera.phased.phase import Phase
from tessera.phased.plan import Asked, cut_model, least_budget, plan_memory
from tessera.phased.schedules import open_schedule
from tessera.phased.schedules.schedule import Schedule, Setup
from tessera.phased.store.dtypes import arithmetic, computed_dtype
from tessera.phased.store.reader import Reading
from tessera.phased.store.stores import open_store, write_store
from tessera.phased.store.weights_writer import planned

WARM_BALANCE = 16.0  # FLOPs that a host computes while one byte comes from its own memory or page cache
Shape = Sequence[int] | Sequence[Sequence[int]]


class PhasedModel:
    """Runs a network in phases: the weights of a phase are loaded when it is due, and the loading is hidden.

    `model` has its values, which are written to a store phase by phase, or is on the meta device, and `path` names a
    safetensors file with its weights; then they are never in memory as a whole. Outputs equal those of the plain model
    in evaluation mode; its weights may also be stored in 16 bits (`dtype`), and are computed with in float32 then.

    `budget` bounds the working memory for weights; what it leaves beside the buffers keeps phases for good (unless
    `keep` is False). `sharded` and `resident` hold all weights and are not bound by it. Phases are found by the budget
    and, if `input_shape` (of one batch, or of each input) is given, by the balance of loading and computing; or they
    begin at the modules named in `phases`. Activations that cross phases stay in memory up to `activations` bytes
    (None: all of them) and go through a scratch file beyond that.

    `store` is where the weights are: "disk", "host" (memory) or "mapped". Without a `path` the file on disk has no
    name, lies in `directory` and is gone with the process. `cold` reads past the system's page cache. `checksums` are
    verified on every load. A model is closed by `close()` or by the end of a `with` block.
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
        phases: Sequence[str] | None = None,
        input_shape: Shape | None = None,
        cold: bool = False,
        checksums: bool = False,
        threads: int | None = None,
        workers: str = "threads",
        keep: bool = True,
        activations: str | int | None = None,
        directory: Path | str | None = None,
    ) -> None:
        self.budget = parse_bytes(budget)
        self.schedule, self.devices = choose(schedule, devices)
        self.store, self.workers = store, workers
        self._check(cold, activations)
        place = None if path is None else Path(path)
        folder = None if directory is None else Path(directory)
        self._scratch = Scratch(None if activations is None else parse_bytes(activations), folder)
        skeleton = skeleton_of(model)
        asked = Asked(
            schedule=self.schedule,
            devices=self.devices,
            areas=_areas(workers, self.devices),
            budget=self.budget,
            dtype=dtype,
            mapped=store == "mapped",
        )
        cutting = partial(
            cut_model,
            skeleton,
            asked,
            names=phases,
            shapes=None if input_shape is None else _shapes(input_shape),
            balance=BALANCE if cold else WARM_BALANCE,
        )
        keep = keep and workers == "threads"
        self._timeline = Timeline()
        self._one_call = threading.Lock()
        self.events: list[Event] = []
        with ExitStack() as opened:
            if _is_bare(skeleton, model):
                if place is None:
                    raise TesseraError("a model on the meta device has no values", do="name a file of weights: path=…")
                kept = open_store(store, place)
                opened.callback(kept.close)
                cut = cutting(tensors=kept.file.tensors)
            else:
                cut = cutting(tensors=None)
                values, groups = weights_of(model).__getitem__, cut.entries(dtype)
                plan_memory(cut, asked, planned(groups), keep=keep)  # what does not fit is refused before it is written
                kept = write_store(store, groups, values, path=place, directory=folder, checksums=checksums)
                opened.callback(kept.close)
            plan = plan_memory(cut, asked, kept.file.tensors, keep=keep)
            stored = [tensor.dtype for layout in plan.layouts for tensor, _ in layout.places]
            self.phases: tuple[Phase, ...] = plan.phases
            self.arithmetic = arithmetic(stored)
            self.working_bytes = plan.division.nbytes
            self._store = kept
            widen = any(computed_dtype(kind) != kind for kind in stored)
            self._network = Network(skeleton=skeleton, graph=cut.graph, parts=tuple(cut.parts), widen=widen)
            reading = Reading(file=kept.file, direct=cold, checksums=checksums, mapped=asked.mapped)
            per_device = _threads(threads, self.devices)
            self._schedule: Schedule | None
            if workers == "processes":
                self._schedule = open_processes(
                    self.schedule,
                    self._network,
                    plan,
                    reading,
                    self._timeline,
                    devices=self.devices,
                    threads=per_device,
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
    def weight_bytes(self) -> int:
        """Bytes of all weights in the store; tied ones count once."""
        return sum(tensor.nbytes for tensor in self._store.file.tensors.values())

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
    ) -> int:
        """The smallest budget, in bytes, with which a model can be run by a schedule; it may be on the meta device."""
        schedule, devices = choose(schedule, devices)
        areas = _areas(workers, devices)
        return least_budget(skeleton_of(model), dtype=dtype, schedule=schedule, devices=devices, areas=areas)

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

    def _check(self, cold: bool, activations: str | int | None) -> None:
        if self.store not in STORES:
            raise TesseraError("unknown store", got=self.store, allowed=STORES)
        if self.workers not in WORKERS:
            raise TesseraError("unknown kind of device", got=self.workers, allowed=WORKERS)
        if self.workers == "processes" and self.schedule not in ("phased", "sharded"):
            raise TesseraError(
                "devices are processes only for the schedules phased and sharded", got=self.schedule, do="use threads"
            )
        if self.workers == "processes" and activations is not None:
            raise TesseraError("devices that are processes share activations in memory", do="leave `activations` out")
        if cold and self.store != "disk":
            raise TesseraError("only a file on disk can be read cold", got=self.store, do="use the store disk")


def _is_bare(skeleton: Skeleton, model: nn.Module) -> bool:
    """Whether a model is on the meta device; one that is so in part is refused."""
    bare = [name for name, tensor in weights_of(model).items() if tensor.is_meta]
    if bare and len(bare) < len(skeleton.stored_name):
        raise TesseraError("some weights have values and some have none", got=bare[0], do="build it in one way")
    return bool(bare)


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
