"""The pager: loads phases of weights into working memory, on demand or ahead of use (prefetching).

The network runs its own Python. When it reads a weight of a different phase, the pager switches to that phase: it waits
for the load of the phase, and prefetches the phases that followed it in earlier passes. If the execution order differs
from earlier passes, phases are loaded on demand and counted as misses. The memory of a phase is reused only when no
tensor of the network uses it any more, so expressions with weights of several phases are exact, too.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from tessera.errors import TesseraError
from tessera.measure.memory import trim_allocator
from tessera.phased.events import Event, EventTimeline
from tessera.phased.memory.arena import MemoryRegion, WorkingArena
from tessera.phased.memory.device_area import DeviceArea, DeviceBlock, DeviceTarget
from tessera.phased.memory.mapped import MappedReader
from tessera.phased.memory.stream_area import AreaBlock, StreamArea, view_as
from tessera.phased.paging.memory_guard import MemoryGuard
from tessera.phased.paging.network_copy import NetworkCopy
from tessera.phased.paging.phasing import PagingPlan, get_converted_bytes, needs_conversion
from tessera.phased.paging.progress import PhasedProgress, ProgressCallback
from tessera.phased.paging.weight_table import WeightSlot, compute_checksum
from tessera.phased.store.encoding import decode_into
from tessera.phased.store.layout import PhaseLayout
from tessera.phased.store.reader import PhaseLoad, PhaseReader
from tessera.phased.store.weights_file import StoredTensor

MAX_LEARNT_VISITS = 16  # visits of every phase, on average, after which the learning of the order ends


class PagedPhase:
    """A phase, and its state: not in memory, being loaded (`loading`), or loaded (`loaded`)."""

    __slots__ = (
        "block",
        "converted",
        "decoded",
        "index",
        "layout",
        "loaded",
        "loading",
        "places",
        "recorded",
        "resident",
    )

    def __init__(self, index: int, layout: PhaseLayout, slots: Sequence[WeightSlot], *, resident: bool) -> None:
        self.index, self.layout, self.resident = index, layout, resident
        self.places: list[tuple[WeightSlot, StoredTensor, int]] = [
            (slot, tensor, at) for slot, (tensor, at) in zip(slots, layout.places, strict=True)
        ]
        converted = any(needs_conversion(slot, tensor) for slot, tensor, _ in self.places)
        nbytes = sum(get_converted_bytes(slot) for slot, _, _ in self.places) if converted else 0
        encoded = any(tensor.encoding for tensor in (tensor for _, tensor, _ in self.places))
        self.converted, self.decoded = (0, nbytes) if encoded else (nbytes, 0)
        self.block: AreaBlock | None = None
        self.loading: PhaseLoad | None = None
        self.loaded = self.recorded = False

    @property
    def nbytes(self) -> int:
        """Bytes of a block that holds the phase: as stored, and decoded beside it if it is encoded."""
        return self.layout.nbytes + self.decoded


@dataclass(slots=True)
class PagerCounts:
    """Counters of a pager: phases loaded on demand (`misses`), all loads, passes, and evictions of resident phases."""

    misses: int = 0
    loads: int = 0
    passes: int = 0
    evictions: int = 0
    loaded_bytes: int = 0

    def add(self, other: PagerCounts) -> None:
        """Add the misses, loads, bytes and passes of another pager."""
        self.loaded_bytes += other.loaded_bytes
        self.misses, self.loads, self.passes = (
            self.misses + other.misses,
            self.loads + other.loads,
            self.passes + other.passes,
        )


class BatchCoordinator(Protocol):
    """Protocol of an object that runs several mini-batches and decides which mini-batch enters a phase."""

    def arrive(self, phase: PagedPhase) -> None:
        """Wait until the mini-batch of this thread may enter a phase, and enter it."""

    def includes_this_thread(self) -> bool:
        """Return whether this thread runs one of the mini-batches."""


class Pager:
    """Loads the weights of a network phase by phase.

    `active` is the phase in use. `current` equals `active` on the fast path (weights read without calling the pager),
    and is None while the pager learns the order or several mini-batches run.

    With `ahead`, phases that are expected next are prefetched in the background. With `reload`, a streamed phase is
    dropped when the network leaves it, even if its memory is not needed. Close to the limit of a `guard`, prefetching
    stops and resident phases are evicted; the evicted phases are streamed from then on. With `targets`, phases are
    loaded into the memory of accelerators, in turns.
    """

    def __init__(
        self,
        network: NetworkCopy,
        plan: PagingPlan,
        reader: PhaseReader,
        timeline: EventTimeline,
        *,
        ahead: bool,
        reload: bool = False,
        guard: MemoryGuard | None = None,
        targets: Sequence[DeviceTarget] = (),
    ) -> None:
        self._targets = targets
        self._reader, self._timeline, self._ahead, self._reload = reader, timeline, ahead, reload
        self._guard = guard
        self.progress: ProgressCallback | None = None
        self.plan = plan
        mapped = reader if isinstance(reader, MappedReader) else None
        self._mapped = mapped
        shares = plan.shares
        self._area: StreamArea | DeviceArea = StreamArea(shares.stream, mapped, shares.regions)
        if targets:
            self._area = DeviceArea(shares.stream, targets, shares.regions)
        self._converted: dict[int, MemoryRegion] = {}  # by the number of the device
        self.active: PagedPhase | None = None
        self.current: PagedPhase | None = None
        self.learning = False
        self.unit_order: dict[int, None] = {}  # units in the order of their first use, while `learning`
        self.counts = PagerCounts()
        self.is_loading = False  # whether the network waits for a load
        self.device = 0
        self.coordinator: BatchCoordinator | None = None
        self.observer: Callable[[], None] | None = None  # called before every switch to another phase
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._closed = False
        self._hold: AbstractContextManager[None] | None = None
        self._entered = 0.0
        self._learnt = 0  # phases entered since the last end of a pass
        self._last: tuple[int, int] = (-1, -1)  # indices of the last two phases entered
        self.phases: list[PagedPhase] = []
        for index, (units, layout) in enumerate(zip(plan.groups, plan.layouts, strict=True)):
            slots = [network.slots[name] for unit in units for name in network.units[unit].weights]
            phase = PagedPhase(index, layout, slots, resident=index in shares.resident)
            self.phases.append(phase)
            for slot in slots:
                if slot.owner is not None or slot.tensor is None:  # not a weight that the network has written into
                    slot.owner, slot.phase, slot.tensor = self, phase, None
                    if targets:
                        slot.device = targets[index % len(targets)].device.torch_device
        count = len(self.phases)
        self._next: dict[int, int] = {index: (index + 1) % count for index in range(count)}
        self._next_after: dict[tuple[int, int], int] = {}
        try:
            self._load_resident()
            with self._lock:
                self._load_ahead(0)
        except BaseException:
            self.close()
            raise

    def fetch(self, slot: WeightSlot) -> Tensor:
        """Switch to the phase of a weight, and return the weight."""
        if os.getpid() != self._process:
            raise TesseraError(
                "a PhasedModel cannot be used in a forked process", do="create the PhasedModel in the new process"
            )
        if self.learning:
            self.unit_order.setdefault(slot.unit)
        while True:
            phase = slot.phase
            if slot.owner is not self:  # the network wrote into the weight, or the phases changed
                return slot.fetch()
            assert isinstance(phase, PagedPhase)
            if self.coordinator is not None and self.coordinator.includes_this_thread():
                self.coordinator.arrive(phase)
            elif phase is not self.active:
                self.enter(phase)
            if (tensor := slot.tensor) is not None:
                return tensor
            with self._lock:
                if phase is self.active and slot.owner is self and slot.tensor is None:
                    self.active = self.current = None  # another thread dropped the phase

    def enter(self, phase: PagedPhase) -> None:
        """Make a phase active: wait until it is loaded, and start to prefetch the phases after it."""
        with self._lock:
            if self._closed:
                raise TesseraError("this model is closed", do="create a new PhasedModel")
            if phase is self.active:
                return
            if self.observer is not None:
                self.observer()
            now = time.perf_counter()
            self.leave(now)
            self._learn(phase)
            if self._guard is not None:
                self._free_memory(self._guard, phase)
            if phase.resident:
                self._take_hold()
            else:
                self._finish_load(phase, now)
            self.active, self._entered = phase, time.perf_counter()
            self.current = None if self.learning or self.coordinator is not None else phase
            if self._ahead:
                self._load_ahead(self._predict(phase.index))
            if self.progress is not None:
                self.progress(self._describe_progress(phase))

    def _describe_progress(self, phase: PagedPhase) -> PhasedProgress:
        return PhasedProgress(
            stage="run",
            done=self.counts.loaded_bytes,
            total=sum(other.layout.stored_bytes for other in self.phases if not other.resident),
            phase=phase.index,
            phases=len(self.phases),
            number=self.counts.passes + 1,
        )

    def leave(self, now: float | None = None) -> None:
        """Leave the active phase, if any."""
        with self._lock:
            if self.active is None:
                return
            if self.coordinator is None:
                stop = time.perf_counter() if now is None else now
                self._timeline.add(
                    Event(device=self.device, phase=self.active.index, kind="compute", start=self._entered, stop=stop)
                )
            phase, self.active, self.current = self.active, None, None
            self._drop_hold()
            if self._reload and not phase.resident:
                self._drop(phase)

    def end_pass(self) -> None:
        """End a pass, and start to prefetch the first phases of the next pass."""
        with self._lock:
            self.leave()
            self.counts.passes += 1
            self._learnt = 0
            if self._ahead and not self._closed:
                self._load_ahead(self._predict(self._last[1]))

    @property
    def loaded_bytes(self) -> int:
        """Bytes of weights that were in memory at some time of a pass, at least."""
        shares, streamed = self.plan.shares, [p.nbytes for p in self.phases if not p.resident]
        return shares.resident_bytes + shares.pinned + shares.converted + max(streamed, default=0)

    def hold(self) -> AbstractContextManager[None]:
        """Return a context in which resident weights stay valid."""
        return self._reader.hold()

    def keep_modified_weights(self) -> None:
        """Keep all weights that the network has modified in memory; called before the phases are planned again."""
        with self._lock:
            for phase in self.phases:
                self._keep_modified(phase)

    def close(self) -> None:
        """Stop loading and drop all weights. After the return, nothing is written into memory."""
        with self._lock:
            self._closed = True
            self._drop_hold()
            for phase in self.phases:
                if phase.loading is not None:
                    phase.loading.cancel()
                for slot, _, _ in phase.places:
                    if slot.owner is self:
                        slot.tensor = None
            self.active = self.current = None

    def free(self) -> None:
        """Free the working memory of a closed pager."""
        for phase in self.phases:  # slots refer to their phases
            phase.block = phase.loading = None
        self.phases, self._converted = [], {}
        self._area = StreamArea(0)

    # loading

    def _learn(self, phase: PagedPhase) -> None:
        before, last = self._last
        self._learnt += 1
        if self._learnt > MAX_LEARNT_VISITS * (len(self.phases) + 1):  # a method that never calls the network's forward
            self.learning = False
        if last >= 0:
            self._next[last] = self._next_after[before, last] = phase.index
        self._last = (last, phase.index)

    def _predict(self, index: int) -> int:
        """Return the index of the phase that is expected after phase `index`."""
        return self._next_after.get((self._last[0], index), self._next.get(index, 0))

    def _list_expected(self, first: int) -> Iterator[PagedPhase]:
        """Yield the phases in the expected order of use, beginning with phase `first`, until a phase repeats."""
        before, at = self._last[1], first
        seen: set[int] = set()
        while at not in seen:
            seen.add(at)
            yield self.phases[at]
            before, at = at, self._next_after.get((before, at), self._next[at])

    def _load_ahead(self, first: int) -> None:
        """Prefetch the phases that are expected next, as far as memory suffices."""
        needed: list[PagedPhase] = [] if self.active is None else [self.active]
        for phase in self._list_expected(first):
            if len(needed) > 4 or (self._guard is not None and not self._guard.has_space(2 * phase.nbytes)):
                break
            if not phase.resident and phase.block is None and not self._start_load(phase, needed):
                break
            if not phase.resident:
                needed.append(phase)

    def _start_load(self, phase: PagedPhase, needed: Sequence[PagedPhase]) -> bool:
        """Start to load a phase, evicting phases that are not `needed`; return False if there is not enough memory."""
        apart = needed[0].block if needed else None
        block = self._area.allocate(phase.nbytes, number=phase.index, apart_from=apart)
        if block is None:
            for other in self._list_evictable(needed):
                self._drop(other)
                block = self._area.allocate(phase.nbytes, number=phase.index, apart_from=apart)
                if block is not None:
                    break
        if block is None:
            return False
        self._read_into(phase, block)
        return True

    def _free_memory(self, guard: MemoryGuard, phase: PagedPhase) -> None:
        """Free memory until a phase can be loaded below the limit of the process, or raise an error."""
        guard.check()
        nbytes = 0 if phase.resident or phase.block is not None else phase.nbytes
        if guard.has_space(nbytes):
            return
        for other in self.phases:
            if other is not phase and other.block is not None and not other.resident:
                self._drop(other)
        self._area.trim()
        trim_allocator()
        if self._ahead:
            expected = list(self._list_expected(phase.index))
            for other in reversed(expected):  # furthest next use first
                if guard.has_space(nbytes):
                    break
                if other.resident and other is not phase and self._mapped is None:
                    self._evict(other)
        if nbytes and not guard.has_space(nbytes):
            raise guard.build_error(nbytes)

    def _evict(self, phase: PagedPhase) -> None:
        """Stream a resident phase from now on; its memory is free when no tensor of the network uses it."""
        self._keep_modified(phase)
        self._clear_slots(phase)
        phase.resident = phase.loaded = False
        self.counts.evictions += 1

    def _list_evictable(self, needed: Sequence[PagedPhase]) -> list[PagedPhase]:
        """Return the evictable phases, furthest next use first (Belady order)."""
        rank = {phase.index: number for number, phase in enumerate(self._list_expected(self._predict(self._last[1])))}
        held = [p for p in self.phases if p.block is not None and not p.resident and p not in needed]
        return sorted(held, key=lambda p: -rank.get(p.index, len(self.phases)))

    def _read_into(self, phase: PagedPhase, block: AreaBlock) -> None:
        phase.block, phase.recorded, phase.loaded = block, False, False
        self.counts.loads += 1
        self.counts.loaded_bytes += phase.layout.stored_bytes
        try:
            finish = functools.partial(self._decode, phase, block.region, None) if phase.decoded else None
            if isinstance(block, DeviceBlock):
                phase.loading = block.target.start_load(self._reader, phase.layout, block)
            else:
                phase.loading = self._reader.start_read(phase.layout, block.region.memory, finish)
        except BaseException:
            phase.block = None
            self._area.release(block)
            raise

    def _finish_load(self, phase: PagedPhase, requested: float) -> None:
        """Wait until a phase is loaded, and give its weights to the network."""
        if phase.block is None:
            if self._ahead and self._last[0] >= 0:
                self.counts.misses += 1
            if not self._start_load(phase, []):
                self._read_into(phase, self._area.allocate_extra(phase.nbytes, number=phase.index))
        loading = phase.loading
        assert loading is not None
        assert phase.block is not None
        self.is_loading = True
        try:
            loading.wait()
            if isinstance(phase.block, DeviceBlock):
                phase.block.target.finish_load(phase.block)
            self._take_hold()
        except Exception:  # an interrupt (Ctrl-C) leaves the load as it is
            loading.cancel()
            self._drop(phase)
            raise
        finally:
            self.is_loading = False
        if not phase.recorded:
            phase.recorded = True
            self._timeline.add(
                Event(
                    device=self.device,
                    phase=phase.index,
                    kind="load",
                    start=loading.start,
                    stop=loading.stop,
                    bytes=loading.nbytes,
                )
            )
            if self._ahead and loading.stop > requested:
                now = time.perf_counter()
                self._timeline.add(Event(device=self.device, phase=phase.index, kind="wait", start=requested, stop=now))
        if not phase.loaded or phase.converted:
            into = self._choose_conversion_region(phase) if phase.converted else None
            self._assign_weights(phase, phase.block.region, into)
            phase.loaded = True

    def _load_resident(self) -> None:
        """Load the resident phases, each into its own memory."""
        resident = [phase for phase in self.phases if phase.resident]
        for phase in resident:
            if self._targets:
                self._load_resident_to_device(phase)
                continue
            size = phase.converted or phase.decoded or (0 if self._mapped else phase.nbytes)
            [region] = WorkingArena([size]).regions  # memory of its own, which is freed if the phase is evicted
            if phase.converted or phase.decoded or self._mapped is not None:
                block = None if self._mapped is not None else self._area.allocate(phase.nbytes)
                if block is None:
                    block = self._area.allocate_extra(phase.nbytes)
                self._reader.read(phase.layout, block.region.memory)
                with self._reader.hold():
                    if phase.decoded:
                        self._decode(phase, block.region, region)
                        self._assign_weights(phase, region, None, decoded_at=0)
                    else:
                        self._assign_weights(phase, block.region, region if phase.converted else None)
                if phase.converted or phase.decoded:
                    self._area.release(block)
            else:
                self._reader.read(phase.layout, region.memory)
                self._assign_weights(phase, region, None)
            phase.loaded = True

    def _load_resident_to_device(self, phase: PagedPhase) -> None:
        """Load a resident phase into a buffer of its own on its device."""
        target = self._targets[phase.index % len(self._targets)]
        block = DeviceBlock(target, phase.nbytes)
        target.start_load(self._reader, phase.layout, block).wait()
        target.finish_load(block)
        self._assign_weights(phase, block.region, target.allocate_region(phase.converted) if phase.converted else None)
        phase.loaded = True

    def _decode(self, phase: PagedPhase, source: MemoryRegion, into: MemoryRegion | None) -> None:
        """Decode and convert the weights of a phase, in the loading thread; by default, beside the stored bytes."""
        region, at = (source, phase.layout.nbytes) if into is None else (into, 0)
        with torch.inference_mode(False), torch.no_grad():
            for slot, tensor, place in phase.places:
                target = _view_converted(slot, region, at)
                if not tensor.encoding:
                    target.copy_(view_as(source, place, tensor.dtype, tensor.shape))
                else:
                    dense = target if slot.strides is None else torch.empty(slot.shape, dtype=slot.dtype)
                    decode_into(source.data[place : place + tensor.nbytes].numpy(), tensor.encoding, dense)
                    if dense is not target:
                        target.copy_(dense)
                at += get_converted_bytes(slot)

    def _assign_weights(
        self, phase: PagedPhase, source: MemoryRegion, into: MemoryRegion | None, *, decoded_at: int | None = None
    ) -> None:
        """Give the weights in a region to the network, converted into another region if there is one."""
        at = phase.layout.nbytes if decoded_at is None else decoded_at
        if not phase.decoded:
            at = 0
        with torch.inference_mode(False), torch.no_grad():
            for slot, tensor, place in phase.places:
                if slot.owner is not self:
                    at += get_converted_bytes(slot) if phase.decoded else 0
                    continue
                if phase.decoded:
                    value = _view_converted(slot, source, at)
                    at += get_converted_bytes(slot)
                else:
                    value = view_as(source, place, tensor.dtype, tensor.shape)
                if into is not None:
                    value = _view_converted(slot, into, at).copy_(value)
                    at += get_converted_bytes(slot)
                slot.set_tensor(value)
                if not slot.checked:
                    slot.checksum = compute_checksum(value)

    def _choose_conversion_region(self, phase: PagedPhase) -> MemoryRegion:
        """Return the conversion area; a newly allocated area if the network still uses weights in the previous area."""
        for other in self.phases:
            if other.converted and not other.resident and other.loaded:
                self._keep_modified(other)
                self._clear_slots(other)
                other.loaded = False
        number = phase.index % len(self._targets) if self._targets else 0
        region = self._converted.get(number)
        if (
            region is None
            or region.data.nbytes < phase.converted  # the phase was resident and has been evicted
            or torch._C._storage_Use_Count(region.data.untyped_storage()._cdata) > 2
        ):
            size = max(self.plan.shares.converted, phase.converted)
            region = self._targets[number].allocate_region(size) if self._targets else WorkingArena([size]).regions[0]
            self._converted[number] = region
        return region

    def _drop(self, phase: PagedPhase) -> None:
        """Free the memory of a phase."""
        if phase.loading is not None and not phase.loaded:
            phase.loading.cancel()
        self._keep_modified(phase)
        self._clear_slots(phase)
        block, phase.block, phase.loading, phase.loaded = phase.block, None, None, False
        if block is not None:
            self._area.release(block)

    def _clear_slots(self, phase: PagedPhase) -> None:
        for slot, _, _ in phase.places:
            if slot.owner is self:
                slot.tensor = None

    def _keep_modified(self, phase: PagedPhase) -> None:
        """Keep modified weights of a phase in memory (buffers, embeddings with `max_norm`)."""
        try:
            hold = self._reader.hold()
            hold.__enter__()
        except TesseraError:  # a mapped file has changed: its pages must not be read, and every later load is an error
            return
        try:
            self._copy_modified(phase)
        finally:
            hold.__exit__(None, None, None)

    def _copy_modified(self, phase: PagedPhase) -> None:
        for slot, _, _ in phase.places:
            if slot.owner is self and (slot.is_written or slot.compare_checksum()):
                assert slot.tensor is not None
                with torch.inference_mode(False), torch.no_grad():
                    slot.set_tensor(slot.tensor.detach().clone())
                slot.owner = None
                if self._mapped is not None:
                    self._mapped.keep_pages(phase.layout)

    def _take_hold(self) -> None:
        self._drop_hold()
        hold = self._reader.hold()
        hold.__enter__()
        self._hold = hold

    def _drop_hold(self) -> None:
        if self._hold is not None:
            hold, self._hold = self._hold, None
            hold.__exit__(None, None, None)


def _view_converted(slot: WeightSlot, region: MemoryRegion, at: int) -> Tensor:
    """Return a tensor with the dtype and the memory format of a weight, in a region at a byte offset."""
    wide = region.view(at, slot.dtype, (slot.nbytes // slot.dtype.itemsize,))
    return wide.view(slot.shape) if slot.strides is None else wide.as_strided(slot.shape, slot.strides)
