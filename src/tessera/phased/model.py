"""`PhasedModel`: a torch network that runs with a bounded part of its weights in memory."""

from __future__ import annotations

import functools
import math
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import Any, Never

import torch
from torch import Tensor, nn

from tessera.affinity import get_affinity
from tessera.device import ComputeDevice
from tessera.errors import TesseraError, get_first_line
from tessera.launch.placement import get_available_cpus, place_workers, read_numa_nodes
from tessera.measure.memory_limits import get_available_bytes
from tessera.models.structure import map_structure
from tessera.phased.activations import hand_over_activations, move_unstreamed
from tessera.phased.choices import choose_schedule, get_store_traits, parse_bytes
from tessera.phased.events import Event, EventTimeline
from tessera.phased.memory.device_area import DeviceTarget, get_free_bytes, open_devices
from tessera.phased.memory.mapped import open_reader
from tessera.phased.paging.checkpoints import (
    adapt_names,
    build_checkpoint_model,
    list_extra_tensors,
    open_checkpoint,
    read_checkpoint_table,
)
from tessera.phased.paging.explanation import MeasuredTimes, format_explanation
from tessera.phased.paging.independence import SampleSplitter, StateObserver, StateSnapshot, describe_call
from tessera.phased.paging.lockstep import Lockstep
from tessera.phased.paging.memory_guard import MemoryGuard
from tessera.phased.paging.network_copy import NetworkCopy, copy_network
from tessera.phased.paging.network_store import open_network_store
from tessera.phased.paging.output_comparison import compare_with_reference
from tessera.phased.paging.pager import Pager
from tessera.phased.paging.phasing import (
    PagingPlan,
    compute_network_min_budget,
    cut_to_budget,
    match_tensors,
    plan_phases,
    plan_unit_file,
)
from tessera.phased.paging.progress import ProgressCallback, ProgressPrinter
from tessera.phased.paging.rehearsal import rehearse
from tessera.phased.paging.turn import PassTurn
from tessera.phased.paging.weight_table import StreamedModule, build_state
from tessera.phased.plan import Phase, PhasingRequest
from tessera.phased.store.encoding import ENCODINGS
from tessera.phased.store.reader import PhaseReader, ReadConfig
from tessera.phased.store.stores import WeightStore
from tessera.phased.store.weights_file import StoredTensor
from tessera.phased.traits import WeightStoreTraits

Shape = Sequence[int] | Sequence[Sequence[int]]
DEFAULT_BUDGET = "256MB"
MEASURED_PASSES = 3  # passes after which resident phases are chosen by their measured benefit
MOST_LISTED_ERRORS = 5  # tensors in the text of encoding errors
AUTO_BUDGET_DIVISOR = 2  # budget="auto" is the available memory divided by this number
Call = tuple[tuple[Any, ...], Mapping[str, Any]]
# Options of earlier versions, and their replacements.
_IN_PROCESSES = (
    "devices are threads; in processes of your own, PhasedModels of one file with store='mapped' share its memory"
)
REMOVED_OPTIONS = {
    "workers": _IN_PROCESSES,
    "allocator": _IN_PROCESSES,
    "activations": "pass fewer mini-batches to one call of run(), or smaller mini-batches",
}


class PhasedModel(StreamedModule):
    """A network that runs in phases: the weights of the next phase are loaded while the current phase is computed.

    The network runs its own Python. Its weights are loaded when it reads them, in groups of modules (phases). The order
    is learnt in the first pass, and later passes prefetch. If a later pass has a different order, the result is still
    correct: the missing phases are loaded on demand. Attributes and methods of the network (`generate`, `config`, ...)
    are available as attributes.

    Either `model` holds its weights, which are written to a store phase by phase; or `model` is on the meta device and
    `path` names a safetensors file of its weights, which are never in memory as a whole (see also `from_pretrained`).
    Outputs equal the outputs of `model`, in its mode (training or evaluation) and dtype. Weights get no gradients.
    `weight_bytes` is the size of the stored weights, tied weights counted once; `working_bytes` is the working memory
    for weights.

    Args:
        budget: limit of the working memory for weights, or "auto": half of the available memory, with `device` of the
            free memory of the devices (default: 256MB, or what `memory_limit` leaves). Budget left after the streaming
            buffers keeps some phases resident, unless `keep` is False. Schedules that hold all weights ignore the
            budget.
        memory_limit: limit of the memory of the whole process (its resident set): interpreter, libraries, weights,
            activations and all other data. The budget follows from it; close to the limit, fewer weights stay in
            memory. A process that exceeds the limit, or would exceed it with the next phase, gets an error.
        phases: modules at which phases begin, or their numbers (modules with weights, counted from 0 in the order of
            registration). By default, phases are chosen by the budget and, if `input_shape` is given, by the balance of
            loading and computing.
        device: accelerator that computes, such as "cuda:0", or one for each of `devices`. Phases are read into pinned
            host memory, or are all in it with store "host", and are copied to the device while it computes. Inputs are
            moved to the device, and outputs stay there.
        input_shape: shape of one batch, or of each input.
        store: "disk", "host" (memory) or "mapped". Without a `path`, the file on disk has no name, is in `directory`
            and is removed with the process.
        cold: read past the page cache of the system.
        checksums: verify checksums on every load; with `device` and store "host", once, in the pinned memory.
        pin: pin every device to its own cores.
        verify: compare the first pass with the plain network, which holds all weights in memory meanwhile.
        independent_samples: for schedule "data-parallel": the network computes every sample of a mini-batch without
            the other samples, so that a mini-batch can be split over the devices. By default, it is split only if an
            analysis of the operators of the first mini-batch shows this.

        progress: True to print bytes, phase and pass to standard error: as one line on a terminal, otherwise as a line
            every five seconds. Or a function that is called with a `PhasedProgress` at every phase.

    Close a model with `close()` or a `with` block.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        budget: str | int | None = None,
        memory_limit: str | int | None = None,
        devices: int | None = None,
        device: str | Sequence[str] | None = None,
        schedule: str | None = None,
        store: str = "disk",
        dtype: str | None = None,
        path: Path | str | None = None,
        phases: Sequence[str | int] | None = None,
        input_shape: Shape | None = None,
        cold: bool = False,
        checksums: bool = False,
        threads: int | None = None,
        pin: bool = True,
        keep: bool = True,
        directory: Path | str | None = None,
        verify: bool = False,
        weights: WeightStore | None = None,
        independent_samples: bool = False,
        progress: bool | ProgressCallback = False,
        **removed: Never,
    ) -> None:
        super().__init__()
        _refuse_removed(removed)
        self._guard = None if memory_limit is None else MemoryGuard(parse_bytes(memory_limit))
        self.traits, self.devices = choose_schedule(schedule, devices)
        self.store, store_traits = store, get_store_traits(store)
        self._targets: list[DeviceTarget] = []
        self._accelerators = self._open_accelerators(device, store_traits, dtype, verify=verify)
        available = functools.partial(get_free_bytes, self._accelerators) if self._accelerators else get_available_bytes
        self._max_budget = None if budget is None else parse_budget(budget, available=available)
        self.budget = parse_budget(budget, self._guard, available)
        if cold and not store_traits.can_be_cold:
            raise TesseraError(f"cold=True does not support store={store!r}", do="use store='disk'")
        if self._guard is not None and store_traits.in_host_memory:
            raise TesseraError("`memory_limit` requires store='disk' or 'mapped'", do="leave memory_limit out")
        if directory is not None and (path is not None or store_traits.in_host_memory):
            raise TesseraError(
                "`directory` has no effect, because no file is written", got=str(directory), do="leave `directory` out"
            )
        if independent_samples and self.traits.computes_together != "always":
            raise TesseraError(
                "`independent_samples` requires schedule 'data-parallel'", do="leave `independent_samples` out"
            )
        self._independent_samples = independent_samples
        self._progress: ProgressCallback | None = None
        if progress:
            self._progress = ProgressPrinter() if progress is True else progress
        self._timeline = EventTimeline()
        self._turn = PassTurn(self._list_threads)
        self.events: list[Event] = []
        self._threads = _choose_threads(threads, self.devices)
        self._request = PhasingRequest(
            schedule=self.traits,
            store=store_traits,
            devices=self.devices,
            cores=self._threads * self.traits.count_computing_devices(self.devices, batches=2),
            budget=self.budget,
            dtype=dtype,
            keep=keep,
            cold=cold,
            starts=phases,
            pinned=bool(self._accelerators) and store_traits.in_host_memory,
            shapes=None if input_shape is None else _normalize_shapes(input_shape),
        )
        self._reference: nn.Module | None = None
        self._closed, self._process = False, os.getpid()
        with ExitStack() as resources:
            self._open_network(
                model,
                resources,
                weights,
                path=path,
                directory=None if directory is None else Path(directory),
                checksums=checksums,
                pin=pin,
                verify=verify,
            )
            self._closing = weakref.finalize(self, _close_resources, resources.pop_all(), self._process)

    def _open_accelerators(
        self, names: str | Sequence[str] | None, store: WeightStoreTraits, dtype: str | None, *, verify: bool
    ) -> list[ComputeDevice]:
        """Open the accelerators that the weights are streamed to; none without names."""
        if names is None:
            return []
        unsupported = {
            "store='mapped'": store.mapped,
            "`memory_limit`": self._guard is not None,
            "`verify`": verify,
            f"dtype={dtype!r}": dtype in ENCODINGS,
            f"schedule={self.traits.name!r}": self.traits.computes_together == "always",
        }
        for name, given in unsupported.items():
            if given:
                raise TesseraError(
                    f"{name} is not supported on an accelerator", do="leave it out, or leave `device` out"
                )
        return open_devices(names, self.devices)

    def _open_network(
        self,
        model: nn.Module,
        resources: ExitStack,
        weights: WeightStore | None,
        *,
        path: Path | str | None,
        directory: Path | None,
        checksums: bool,
        pin: bool,
        verify: bool,
    ) -> None:
        request = self._request
        network = copy_network(model)
        rehearsed = None if request.shapes is None else rehearse(model, request.shapes)
        self._flops: Sequence[int] | None = None if rehearsed is None else rehearsed.flops
        order: Sequence[int] | None
        order = None if rehearsed is None or request.starts is not None else rehearsed.order
        if not any(value.is_meta for value in network.values.values()):
            planned = match_tensors(network, plan_unit_file(network, request.dtype), request.dtype)
            request = self._fit_memory_limit(network, planned)
        self._store = open_network_store(
            network,
            request,
            path=None if path is None else Path(path),
            directory=directory,
            checksums=checksums,
            order=order,
            weights=weights,
            progress=self._progress,
        )
        resources.callback(self._store.close)
        self._tensors: Mapping[str, StoredTensor] = match_tensors(
            network, self._store.file.tensors, request.dtype, self._store.file.unsupported
        )
        request = self._fit_memory_limit(network, self._tensors)
        cut = cut_to_budget(network, self._tensors, request, cuts=not checksums)  # a checksum is of a whole tensor
        cut.install(network.slots)
        self._whole = network.slots
        network, self._tensors, order = cut.network, cut.tensors, cut.map_order(order)
        self._flops = cut.map_flops(self._flops)
        plan = plan_phases(network, self._tensors, request, order=order, flops=self._flops)
        self.encoding_errors = {name: t.error for name, t in self._tensors.items() if t.encoding}
        if self.encoding_errors and request.store.mapped:
            raise TesseraError("encoded weights (int8, int4) cannot be mapped", do="use store='disk'")
        self.weight_bytes = sum(tensor.nbytes for tensor in self._tensors.values())
        self.arithmetic = _describe_dtypes(network, self._tensors)
        self.__dict__["_reference"] = model if verify else None  # not registered as a module
        reader = open_reader(
            ReadConfig(
                file=self._store.file,
                direct=request.cold,
                checksums=checksums,
                mapped=request.store.mapped,
                compute_cores=request.cores,
                largest_phase=max(layout.nbytes for layout in plan.layouts),
            )
        )
        resources.callback(reader.close)
        self._reader: PhaseReader = reader
        self._copy: NetworkCopy = network
        for accelerator in self._accelerators:
            file = self._store.file if request.pinned else None
            ring = 0 if request.pinned else max(layout.nbytes for layout in plan.layouts)
            target = DeviceTarget(accelerator, ring_bytes=ring, file=file)
            self._targets.append(target)
            resources.callback(target.close)
            target.check_weights(reader, self._tensors.values())
        if self._accelerators:
            move_unstreamed(network.model, self._accelerators[0].torch_device)
        self._pager = self._open_pager(plan)
        pagers = self._pagers = [self._pager]
        resources.callback(lambda: pagers[0].close())
        self._pager.learning = request.starts is None and not self.traits.holds_all_weights
        self._depth = 0
        self._times = MeasuredTimes()
        self._measured = False
        self._stateless: dict[str, bool] = {}  # by kind of call
        self.__dict__["network"] = network.model  # not registered: names of weights stay as they are
        self.training = network.model.training
        _wrap_forward(network.model, self._run_in_pass)
        self._splitter: SampleSplitter | None = None
        if self.traits.computes_together == "always" and self.devices > 1:
            self._splitter = SampleSplitter(self.devices, promised=self._independent_samples)
        cpus = get_available_cpus()
        several = self.traits.several_devices
        self._lockstep = Lockstep(
            self._pager,
            self._timeline,
            devices=self.devices,
            threads=self._threads,
            parallel=self.devices if self.traits.computes_together != "never" else 1,
            by_phase=self.traits.holds_all_weights and several,
            alternate=self.traits.buffers_per_device,
            cpus=place_workers(self.devices, self._threads, cpus, read_numa_nodes()) if pin and several else (),
        )

    def _open_pager(self, plan: PagingPlan) -> Pager:
        keep = self._request.keep and self.traits.keeps_phases
        ahead = self.traits.overlaps_loads
        pager = Pager(
            self._copy,
            plan,
            self._reader,
            self._timeline,
            ahead=ahead,
            reload=not keep,
            guard=self._guard,
            targets=self._targets,
        )
        pager.progress = self._progress
        return pager

    def _fit_memory_limit(self, network: NetworkCopy, tensors: Mapping[str, StoredTensor]) -> PhasingRequest:
        """Increase the budget to the minimum of the schedule; raise an error if the memory limit is too small."""
        if self._guard is not None:
            least = compute_network_min_budget(network, tensors, self._request, prefetch=False)
            if least > self._guard.free_bytes:
                raise self._guard.build_error(least)
            if least > self.budget:
                self.budget = least
                self._request = replace(self._request, budget=least)
        return self._request

    # running

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the network's output for one batch."""
        self._check_open()
        if self.traits.several_devices or self._reference is not None:
            return self._run_pass([(args, kwargs)])[0]
        return self.__dict__["network"](*args, **kwargs)

    def run(self, batches: Sequence[Any]) -> list[Any]:
        """Return the outputs for several mini-batches, which all pass through a phase before the next phase is loaded.

        A mini-batch is one input, a tuple of inputs, or a dict of keyword arguments. A network with state (values that
        it keeps on its modules, or random numbers) computes one mini-batch after the other.
        """
        self._check_open()
        return self._run_pass([as_call(batch) for batch in batches])

    run_many = run

    def _run_pass(self, calls: list[Call]) -> list[Any]:
        if not calls:
            return []
        with self._turn.take() as in_turn:
            self._check_open()
            if not in_turn:
                return [self._call(call) for call in calls]
            if self._reference is not None:
                reference, self.__dict__["_reference"] = self._reference, None
                return [
                    compare_with_reference(self.__dict__["network"], reference, self._whole, *calls[0]),
                    *(self._run_pass(calls[1:]) if calls[1:] else ()),
                ]
            with self._pass_scope():
                return self._run_calls(calls)

    def _run_calls(self, calls: list[Call]) -> list[Any]:
        """Run mini-batches together if that is exact, otherwise one after the other.

        The first mini-batch of every kind (structure, shapes, values that are not tensors, modes) is run alone.
        """
        if len(calls) == 1 and self.traits.computes_together != "always":
            return self._run_together(calls)
        results: list[Any] = []
        kinds = [describe_call(call, self.__dict__["network"]) for call in calls]
        while rest := calls[len(results) :]:
            kind = kinds[len(results)]
            if any(self._stateless.get(other) is False for other in kinds):
                return results + [self._call(call) for call in rest]
            if all(other in self._stateless for other in kinds[len(results) :]):
                return results + self._run_checked(rest, split=len(calls) % self.devices != 0)
            results.append(self._call(rest[0]) if kind in self._stateless else self._observe(rest[0], kind))
        return results

    def _run_checked(self, calls: list[Call], *, split: bool) -> list[Any]:
        """Run mini-batches together, and raise an error if the network changed its state meanwhile."""
        network = self.__dict__["network"]
        self._pager.keep_modified_weights()
        before = StateSnapshot(network)
        results = self._run_split(calls) if split and self._splitter is not None else None
        if results is None:
            results = self._run_together(calls)
        if name := before.find_change(StateSnapshot(network)):
            self._stateless = dict.fromkeys(self._stateless, False)
            raise TesseraError(
                "the network changed its state while several mini-batches ran together, so the results are not those "
                "of one mini-batch after the other",
                got=name,
                do="create the PhasedModel again, and call it with one mini-batch after the other",
            )
        return results

    def _run_split(self, calls: list[Call]) -> list[Any] | None:
        """Run mini-batches with their samples split over the devices; return None if they cannot be split."""
        assert self._splitter is not None
        split = self._splitter.split_calls(calls, self.__dict__["network"], self._call)
        if split is None:
            return None
        try:
            results = self._run_together(split.calls)
        except Exception as error:  # a network may refuse parts of a mini-batch in any way
            self._splitter.refuse(get_first_line(error))
            return None
        return self._splitter.join(split, results)

    def _run_together(self, calls: Sequence[Call]) -> list[Any]:
        if len(calls) == 1 and not self.traits.several_devices:
            return [self._call(calls[0])]
        return self._lockstep.run([functools.partial(self._call, call) for call in calls], self._pager)

    def _call(self, call: Call) -> Any:
        return self.__dict__["network"](*call[0], **call[1])

    def _observe(self, call: Call, kind: str) -> Any:
        """Run one mini-batch, and find out whether the network keeps state in its modules or draws random numbers."""
        self._pager.keep_modified_weights()
        observer = StateObserver(self.__dict__["network"])
        self._pager.observer = observer.compare
        try:
            with observer.watch_assignments():
                result = self._call(call)
        finally:
            self._pager.observer = None
        observer.compare()
        self._stateless[kind] = not observer.changed
        return result

    def _run_in_pass(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._accelerators:
            first = self._accelerators[0].torch_device
            args, kwargs = map_structure((args, kwargs), lambda value: _move(value, first))
            if len(self._accelerators) > 1:
                function = hand_over_activations(function)
        if self._lockstep.includes_this_thread():
            return function(*args, **kwargs)
        with self._pass_scope():
            return function(*args, **kwargs)

    @contextmanager
    def _pass_scope(self) -> Iterator[None]:
        """Mark the beginning and the end of a pass; nested calls belong to the outermost pass."""
        self._check_open()
        with self._turn.take() as in_turn:
            self._check_open()
            if not in_turn:
                yield
                return
            self._depth += 1
            before = torch.get_num_threads()
            if self._depth == 1 and before != self._threads:
                torch.set_num_threads(self._threads)
            finished = False
            try:
                yield
                finished = True
            finally:
                self._depth -= 1
                if self._depth == 0:
                    if torch.get_num_threads() != before:
                        torch.set_num_threads(before)
                    self._pager.end_pass()
                    self.events = self._timeline.drain()
                    self._times.add(self.events)
                    if finished:
                        self._improve_plan()

    def _improve_plan(self) -> None:
        """Plan the phases again after a pass, if it showed another order of the modules or another use of memory."""
        pager, request = self._pager, self._request
        planned = [unit for group in pager.plan.groups for unit in group]
        order = planned
        if pager.learning:
            pager.learning = False
            order = list(pager.unit_order)
        evicted = pager.counts.evictions > 0
        if self._guard is not None and (pager.counts.passes == 1 or evicted):
            self._guard.check()
            left = min(self._guard.compute_budget(pager.loaded_bytes), self._max_budget or sys.maxsize)
            request = replace(request, budget=left if evicted else max(left, request.budget))
        times = None
        measures = not self._accelerators  # the times of the host are not those of an accelerator
        if measures and pager.counts.passes >= MEASURED_PASSES and not self._measured and pager.plan.shares.stream:
            self._measured = True
            times = self._times.build_phase_times(pager.plan.phases)
        grown = request.budget > self._request.budget and pager.plan.permits_more(request.budget)
        unchanged = order == planned[: len(order)] and not evicted and not grown
        if unchanged and times is None:
            return
        try:
            plan = plan_phases(self._copy, self._tensors, request, order=order, flops=self._flops, times=times)
        except TesseraError:  # the budget is too small for phases in this order
            return
        if times is not None and unchanged and plan.shares.resident == pager.plan.shares.resident:
            return
        self._request, self.budget = request, request.budget
        self._replace_plan(plan)
        if times is not None:  # after the first passes, counts continue
            self._pager.counts.add(pager.counts)

    def _replace_plan(self, plan: PagingPlan) -> None:
        pager = self._pager
        pager.keep_modified_weights()
        pager.close()
        pager.free()  # before the next pager allocates its working memory
        for target in self._targets:
            target.grow_ring(max(layout.nbytes for layout in plan.layouts))
        self._pager = self._pagers[0] = self._lockstep.pager = self._open_pager(plan)
        self._times = MeasuredTimes()

    def adopt_phases(self, other: PhasedModel) -> None:
        """Divide the network into the phases of another model of the same network, which has learnt their order."""
        groups = other.plan.groups
        if groups == self.plan.groups:
            return
        with self._turn.take():
            order = [unit for group in groups for unit in group]
            request = replace(self._request, starts=[0, *accumulate(len(group) for group in groups[:-1])])
            self._replace_plan(plan_phases(self._copy, self._tensors, request, order=order, flops=self._flops))
            self._request = request
            self._pager.learning = False

    def _list_threads(self) -> list[threading.Thread] | None:
        """Return the threads of the mini-batches that run now; None if they wait for weights."""
        return None if self._pager.is_loading else self._lockstep.threads

    def _check_open(self) -> None:
        if self._closed:
            raise TesseraError("this model is closed", do="create a new PhasedModel")
        if os.getpid() != self._process:  # threads do not exist in a forked process
            raise TesseraError(
                "a PhasedModel cannot be used in a forked process", do="create the PhasedModel in the new process"
            )

    # description

    @property
    def schedule(self) -> str:
        """The name of the schedule."""
        return self.traits.name

    @property
    def plan(self) -> PagingPlan:
        """The phases, their layouts in the store, and the division of the working memory."""
        return self._pager.plan

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases in execution order."""
        return self._pager.plan.phases

    @property
    def memory_limit(self) -> int | None:
        """Limit of the memory of the process in bytes; None if there is none."""
        return None if self._guard is None else self._guard.limit

    @property
    def working_bytes(self) -> int:
        """Bytes of the working memory for weights."""
        return self._pager.plan.shares.nbytes

    @property
    def misses(self) -> int:
        """Number of prefetch misses: phases loaded on demand because the execution order was not as predicted."""
        return self._pager.counts.misses

    @property
    def converts_weights(self) -> bool:
        """Whether the stored dtype of some weights differs from the dtype of the computation."""
        return any(t.encoding or t.dtype != self._copy.slots[name].dtype for name, t in self._tensors.items())

    @property
    def stream_bytes(self) -> int:
        """Bytes of weights that one pass loads."""
        return sum(phase.bytes for phase in self.phases if not phase.resident)

    def explain(self) -> str:
        """Return a table of the phases: modules, bytes, resident or streamed, and times of the last passes."""
        text = format_explanation(self.phases, self._times, self._pager.counts, self.working_bytes, self.budget)
        if self.encoding_errors:
            text += f"\n{self.describe_encoding_errors()}"
        if self._guard is not None:
            text += f"\n{self._guard.describe()}; {self._pager.counts.evictions} resident phases evicted"
        if self._splitter is not None and self._splitter.reason:
            text += f"\nmini-batches are not split over the devices: {self._splitter.reason}"
        return text

    def describe_encoding_errors(self) -> str:
        """Return the error of encoded weights (int8, int4) as text: in total, and of the worst tensors.

        An error is the RMS of the differences over the RMS of the original weights. `encoding_errors` has all tensors.
        """
        worst = sorted(self.encoding_errors.items(), key=lambda item: -item[1])[:MOST_LISTED_ERRORS]
        listed = ", ".join(f"{name} {error:.2%}" for name, error in worst)
        total = self.total_encoding_error
        return f"{len(self.encoding_errors)} encoded weights: error {total:.2%} in total; largest: {listed}"

    @property
    def total_encoding_error(self) -> float:
        """RMS of the relative errors of encoded weights, weighted by numbers of values; 0 if no weight is encoded."""
        sizes = {name: math.prod(self._tensors[name].shape) for name in self.encoding_errors}
        squares = sum(sizes[name] * error**2 for name, error in self.encoding_errors.items())
        return math.sqrt(squares / sum(sizes.values())) if sizes else 0.0

    @classmethod
    def compute_min_budget(
        cls,
        model: nn.Module,
        *,
        schedule: str | None = None,
        devices: int | None = None,
        dtype: str | None = None,
        path: Path | str | None = None,
        prefetch: bool = False,
    ) -> int:
        """Return the minimum budget in bytes: with one byte less, a `PhasedModel` raises an error.

        With `prefetch`, return the minimum budget with which phases are loaded ahead, which takes less time. The model
        may be on the meta device. `path` names an existing checkpoint of its weights: a file written by another
        program may need a larger budget.
        """
        traits, devices = choose_schedule(schedule, devices)
        request = PhasingRequest(
            schedule=traits, store=get_store_traits("disk"), devices=devices, cores=1, budget=0, dtype=dtype
        )
        network = copy_network(model)
        table = plan_unit_file(network, dtype) if path is None else read_checkpoint_table(Path(path), model)
        return compute_network_min_budget(network, match_tensors(network, table, dtype), request, prefetch=prefetch)

    @classmethod
    def from_pretrained(
        cls,
        path: Path | str,
        *,
        model: nn.Module | Callable[[], nn.Module] | None = None,
        allow_extra: bool = True,
        **options: Any,
    ) -> PhasedModel:
        """Open a checkpoint. Weights are read directly from it, and are never in memory as a whole.

        `path` is a safetensors file, a torch file (.pt, .pth, .bin; loaded with `weights_only=True`), or a folder with
        config.json and its files of weights (transformers, diffusers, timm). `model` is the network (on the meta
        device, or with values that are not used), or a function that builds it; None to build it from config.json.
        Missing and mismatched tensors are errors before anything runs; extra tensors are an error if `allow_extra` is
        False. `options` are arguments of `PhasedModel`.
        """
        place = Path(path)
        network = build_checkpoint_model(place, model)
        store = open_checkpoint(place)
        try:
            adapt_names(store, network)
            extra = list_extra_tensors(store, set(network.state_dict(keep_vars=True)))
            if extra and not allow_extra:
                raise TesseraError(
                    "the checkpoint has tensors that the model does not use",
                    got=", ".join(extra[:5]),
                    do="pass the network of this checkpoint as `model`",
                )
            return cls(network, weights=store, **options)
        except BaseException:
            store.close()
            raise

    # nn.Module

    def __getattr__(self, name: str) -> Any:
        network = self.__dict__.get("network")
        if network is None or name.startswith("__"):
            return super().__getattr__(name)
        return getattr(network, name)

    def __setattr__(self, name: str, value: Any) -> None:
        network = self.__dict__.get("network")
        own = name in self.__dict__ or name.startswith("_") or hasattr(type(self), name)
        if network is None or own or not _has_attribute(network, name):
            super().__setattr__(name, value)
        else:
            setattr(network, name, value)

    def named_children(self) -> Iterator[tuple[str, nn.Module]]:
        network = self.__dict__.get("network")
        return super().named_children() if network is None else network.named_children()

    def named_modules(self, memo: set[Any] | None = None, prefix: str = "", remove_duplicate: bool = True) -> Any:
        yield from super().named_modules(memo, prefix, remove_duplicate)
        if "network" in self.__dict__:
            yield from self.__dict__["network"].named_modules(memo, prefix, remove_duplicate)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the weights by name; a weight is loaded by the first operation on it."""
        network = self.__dict__.get("network")
        if network is None:
            return super().state_dict(*args, **kwargs)
        state = network.state_dict(*args, **kwargs)
        return state if args or "destination" in kwargs else build_state(state)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        raise TesseraError("the weights of a PhasedModel cannot be replaced", do="create a new PhasedModel")

    def train(self, mode: bool = True) -> PhasedModel:
        if self.__dict__.get("network") is not None and mode != self.training:
            if mode:
                raise TesseraError(
                    "a PhasedModel cannot change to training mode", do="create it from a model in training mode"
                )
            self.__dict__["network"].train(mode)
        self.training = mode
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> PhasedModel:
        dtypes = {parameter.dtype for parameter in self.parameters()}
        for dtype in dtypes:
            probe = torch.zeros(0, dtype=dtype)
            changed = fn(probe)
            if changed.dtype != dtype or changed.device != probe.device:
                raise TesseraError(
                    "the weights of a PhasedModel cannot be converted or moved",
                    got=f"{changed.dtype}, {changed.device}",
                    do="convert the model before creating the PhasedModel, or pass `dtype`",
                )
        return self

    def drop_cache(self) -> None:
        """Drop the weights file from the page cache, so that the next loads are cold."""
        self._store.drop_cache()

    def close(self) -> None:
        """End threads, free the memory, and remove unnamed files."""
        if os.getpid() != self._process:  # the resources belong to the parent process
            self._closed = True
            return
        with self._turn.take():
            self._closed = True
            self._closing()
            if "_pagers" in self.__dict__:
                for slot in (*self._copy.slots.values(), *self._whole.values()):
                    slot.tensor = None
                    slot.owner = None
                self._pager.free()

    def __enter__(self) -> PhasedModel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _move(value: Any, device: torch.device) -> Any:
    return value.to(device) if isinstance(value, Tensor) and value.device != device else value


def parse_budget(
    budget: str | int | None, guard: MemoryGuard | None = None, available: Callable[[], int] = get_available_bytes
) -> int:
    """Return a budget in bytes; "auto" is half of the memory that is available now, by `available`.

    With a guard, the maximum is half of the memory that its limit leaves. None is this maximum, or `DEFAULT_BUDGET`
    without a guard.
    """
    if budget is None:
        return parse_bytes(DEFAULT_BUDGET) if guard is None else guard.first_budget
    nbytes = available() // AUTO_BUDGET_DIVISOR if budget == "auto" else parse_bytes(budget)
    return nbytes if guard is None else min(nbytes, guard.first_budget)


def _close_resources(resources: ExitStack, process: int) -> None:
    """Close files and threads, unless this is a forked process: they belong to its parent."""
    if os.getpid() == process:
        resources.close()


def _has_attribute(network: nn.Module, name: str) -> bool:
    """Return whether a network has an attribute, without loading a weight."""
    tables = (network.__dict__, network._parameters, network._buffers, network._modules)
    return any(name in table for table in tables) or hasattr(type(network), name)


def _wrap_forward(network: nn.Module, run: Callable[..., Any]) -> None:
    """Wrap `forward`, so that every call of it is a pass, including calls by other methods such as `generate`."""
    forward = network.forward

    @functools.wraps(forward)
    def run_forward(*args: Any, **kwargs: Any) -> Any:
        return run(forward, args, kwargs)

    network.__dict__["forward"] = run_forward


def as_call(batch: Any) -> Call:
    """Return a mini-batch (one input, a tuple of inputs, or a dict of keyword arguments) as arguments of a call."""
    if isinstance(batch, tuple):
        return batch, {}
    return ((), batch) if isinstance(batch, dict) else ((batch,), {})


def _describe_dtypes(network: NetworkCopy, tensors: Mapping[str, Any]) -> str:
    """Describe the stored dtypes and the dtypes of computation, for a record."""
    pairs = {
        (tensor.encoding or str(tensor.dtype), str(network.slots[name].dtype)): None
        for name, tensor in tensors.items()
        if tensor.dtype.is_floating_point
    }
    texts = []
    for stored, computed in pairs:
        names = [name.removeprefix("torch.") for name in (stored, computed)]
        texts.append(names[0] if stored == computed else f"{names[0]} stored and streamed, {names[1]} computed")
    return "; ".join(texts)


def _refuse_removed(options: Mapping[str, object]) -> None:
    """Raise an error that says what to use instead of an option of earlier versions."""
    for name in options:
        if name not in REMOVED_OPTIONS:
            raise TypeError(f"PhasedModel() got an unexpected keyword argument {name!r}")
        raise TesseraError(f"the option `{name}` was removed", do=REMOVED_OPTIONS[name])


def _normalize_shapes(shape: Shape) -> list[tuple[int, ...]]:
    if all(isinstance(size, int) for size in shape):
        return [tuple(shape)]  # type: ignore[arg-type]
    return [tuple(sizes) for sizes in shape]  # type: ignore[arg-type]


def _choose_threads(threads: int | None, devices: int) -> int:
    if threads is not None and threads < 1:
        raise TesseraError("invalid number of threads", got=threads, allowed="1 or more")
    if threads is None:
        return torch.get_num_threads() if devices == 1 else max(1, len(get_affinity()) // devices)
    return threads
