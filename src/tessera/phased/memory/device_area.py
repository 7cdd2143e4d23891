"""Weights in the memory of accelerators: read into pinned host memory, and copied to a device on a copy stream.

All work is ordered by marks (events), without a synchronisation of the device:

- The compute stream waits for the copy of a phase before the network uses its weights.
- The copy stream waits for the work that uses a buffer before it overwrites the buffer with another phase.
- A reading thread waits for the copy of a pinned buffer before it reads the next phase into the buffer.
"""

from __future__ import annotations

import concurrent.futures
import os
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from tessera.device import ComputeDevice, open_device, parse_device
from tessera.errors import TesseraError
from tessera.phased.memory.arena import MemoryRegion
from tessera.phased.memory.stream_area import AreaBlock
from tessera.phased.store.layout import PhaseLayout, round_up_to_page
from tessera.phased.store.reader import PhaseLoad, PhaseReader
from tessera.phased.store.weights_file import PAGE_BYTES, StoredTensor, WeightsFile

RING_BUFFERS = 2  # pinned buffers: one is copied to the device while the other is read into
PINNED_READ_BYTES = 64 << 20


class DeviceBlock(AreaBlock):
    """A buffer on a device. `free_mark`: after it, no work uses the buffer. `load_mark`: the phase has been copied."""

    def __init__(self, target: DeviceTarget, size: int) -> None:
        super().__init__(target.allocate_region(size), 0, size)
        self.target = target
        self.free_mark: Any = target.device.mark_time()
        self.load_mark: Any = None


class PinnedBuffer:
    """Page-aligned pinned host memory that phases are read into, and the last load that used it."""

    def __init__(self, device: ComputeDevice, nbytes: int) -> None:
        whole = device.allocate_host((nbytes + PAGE_BYTES,), torch.uint8)
        self.data = whole[-whole.data_ptr() % PAGE_BYTES :][:nbytes]  # direct I/O requires aligned memory
        self.memory = _get_memory(self.data)
        self.load: PhaseLoad | None = None
        self.copied: Any = None


class DeviceTarget:
    """One device, its copy stream, and the pinned host memory of its loads.

    The host memory is a ring of buffers of `ring_bytes`, or the whole file of weights (`file`).
    """

    def __init__(self, device: ComputeDevice, *, ring_bytes: int = 0, file: WeightsFile | None = None) -> None:
        self.device = device
        self.copy_stream = device.make_stream()
        self._ring: list[PinnedBuffer] = []
        self._next = self._ring_bytes = 0
        self._weights = None if file is None else _read_pinned(device, file)
        self.grow_ring(ring_bytes)

    def grow_ring(self, nbytes: int) -> None:
        """Replace the buffers of the ring if they are smaller than `nbytes`; no load may be in progress."""
        if self._weights is not None or nbytes <= self._ring_bytes:
            return
        for buffer in self._ring:
            if buffer.copied is not None:
                self.device.wait_for(buffer.copied)
        self._ring = []  # before the new buffers are allocated
        self._ring = [PinnedBuffer(self.device, nbytes) for _ in range(RING_BUFFERS)]
        self._next, self._ring_bytes = 0, nbytes

    def check_weights(self, reader: PhaseReader, tensors: Iterable[StoredTensor]) -> None:
        """Verify checksums of the whole file in pinned memory; phases of a ring are verified when they are read."""
        if self._weights is not None:
            reader.check_tensors(((tensor, tensor.start) for tensor in tensors), _get_memory(self._weights))

    def allocate_region(self, nbytes: int) -> MemoryRegion:
        """Return memory on the device; the copy stream may use it, too."""
        with torch.inference_mode(False):
            data = torch.empty(max(1, round_up_to_page(nbytes)), dtype=torch.uint8, device=self.device.torch_device)
        self.device.keep_for(data, self.copy_stream)
        return MemoryRegion(memoryview(b""), data)

    def start_load(self, reader: PhaseReader, layout: PhaseLayout, block: DeviceBlock) -> PhaseLoad:
        """Start to load a phase into a block; `block.load_mark` is set when the load is complete."""
        block.load_mark = None
        if self._weights is not None:
            self._submit_copies(
                block, [(self._weights[run.start : run.needed], run.at, run.needed - run.start) for run in layout.runs]
            )
            return PhaseLoad(layout, memoryview(b""), reader.block, copied=True)
        buffer = self._ring[self._next]
        self._next = (self._next + 1) % len(self._ring)
        before = buffer.load

        def begin() -> None:
            if before is not None:
                concurrent.futures.wait(before.lanes)
            if buffer.copied is not None:
                self.device.wait_for(buffer.copied)

        def finish() -> None:
            self._submit_copies(block, [(buffer.data[: layout.nbytes], 0, layout.nbytes)])
            buffer.copied = block.load_mark

        buffer.load = reader.start_read(layout, buffer.memory, finish, begin)
        return buffer.load

    def finish_load(self, block: DeviceBlock) -> None:
        """Let the compute stream wait for the copy of a loaded phase."""
        assert block.load_mark is not None, "the load is complete"
        self.device.delay_stream(None, block.load_mark)

    def close(self) -> None:
        """Wait until no copy uses the pinned memory, and free it."""
        self.device.synchronize()
        self._ring, self._weights = [], None

    def _submit_copies(self, block: DeviceBlock, parts: Sequence[tuple[Tensor, int, int]]) -> None:
        with torch.inference_mode(False), torch.no_grad(), self.device.use_stream(self.copy_stream):
            self.device.delay_stream(self.copy_stream, block.free_mark)
            for source, at, count in parts:
                self.device.submit_copy(source, block.region.data[at : at + count])
            block.load_mark = self.device.mark_time(self.copy_stream)


class DeviceArea:
    """Buffers on devices with at most `nbytes` bytes in total; a buffer is reused for phases that fit into it.

    A phase is loaded to the device of its number: with two devices, consecutive phases are on different devices.
    """

    def __init__(self, nbytes: int, targets: Sequence[DeviceTarget], buffers: int) -> None:
        self.nbytes, self._targets = round_up_to_page(nbytes), targets
        self._share = self.nbytes // max(1, buffers)
        self._used: list[DeviceBlock] = []
        self._free: list[DeviceBlock] = []
        self._retired: list[DeviceBlock] = []
        self.extra_bytes = 0

    def get_target(self, number: int) -> DeviceTarget:
        """Return the device of phase `number`."""
        return self._targets[number % len(self._targets)]

    def allocate(self, size: int, *, number: int = 0, apart_from: AreaBlock | None = None) -> DeviceBlock | None:
        """Return a free buffer on the device of phase `number`; None if the area is full."""
        self._collect_retired()
        size, target = round_up_to_page(size), self.get_target(number)
        fitting = [block for block in self._free if block.size >= size and block.target is target]
        if fitting:
            block = min(fitting, key=lambda b: b.size)
            self._free.remove(block)
        else:
            taken = sum(block.size for block in (*self._used, *self._retired))
            if taken + size > self.nbytes:
                return None
            while self._free and taken + sum(block.size for block in self._free) + size > self.nbytes:
                self._free.pop(0)
            left = self.nbytes - taken - sum(block.size for block in self._free)
            block = DeviceBlock(target, max(size, self._share) if self._share <= left else size)
        self._used.append(block)
        return block

    def allocate_extra(self, size: int, *, number: int = 0) -> DeviceBlock:
        """Return a buffer beyond the area, which is used while the network holds on to weights of other phases."""
        block = DeviceBlock(self.get_target(number), round_up_to_page(size))
        block.extra = True
        self.extra_bytes = max(self.extra_bytes, block.size)
        return block

    def release(self, block: AreaBlock) -> None:
        """Free a buffer; if tensors of the network still use it, it becomes free when they are deleted."""
        assert isinstance(block, DeviceBlock)
        if block.extra:
            return
        self._used.remove(block)
        self._retired.append(block)
        self._collect_retired()

    def trim(self) -> None:
        """Return the memory of the free buffers to the allocator of the device."""
        self._free = []

    def _collect_retired(self) -> None:
        for block in [block for block in self._retired if not block.is_shared]:
            self._retired.remove(block)
            block.free_mark = block.target.device.mark_time()
            self._free.append(block)


def open_devices(names: str | Sequence[str], count: int) -> list[ComputeDevice]:
    """Open the devices of a model: `count` devices, from the name of the first one or the names of all."""
    if isinstance(names, str):
        kind, _, first = parse_device(names).partition(":")
        names = [names] if count == 1 else [f"{kind}:{int(first or 0) + number}" for number in range(count)]
    if len(names) != count:
        raise TesseraError("the number of names in `device` differs from `devices`", got=len(names), allowed=str(count))
    opened = [open_device(name) for name in names]
    for device in opened:
        if not device.asynchronous:
            raise TesseraError("`device` is an accelerator", got=device.name, do="leave `device` out for the CPU")
    opened[0].synchronize()
    return opened


def get_free_bytes(devices: Sequence[ComputeDevice]) -> int:
    """Return the free memory of devices that hold equal parts: the least free memory times their number."""
    free = [device.read_free_memory() for device in devices]
    known = [nbytes for nbytes in free if nbytes is not None]
    if len(known) < len(free):
        raise TesseraError(
            "budget='auto' requires a device that reports its free memory",
            got=devices[free.index(None)].name,
            do="pass `budget` in bytes",
        )
    return min(known) * len(known)


def _read_pinned(device: ComputeDevice, file: WeightsFile) -> Tensor:
    """Return a whole file of weights in pinned host memory."""
    parts = file.list_parts()
    base, last = parts[-1]
    data = device.allocate_host((base + last.size,), torch.uint8)
    memory = _get_memory(data)
    for base, part in parts:
        at = 0
        while at < part.size:
            into = memory[base + at : base + min(part.size, at + PINNED_READ_BYTES)]
            if not (count := os.preadv(part.fd, [into], at)):
                raise part.build_changed_error()
            at += count
        part.check_unchanged()
    return data


def _get_memory(data: Tensor) -> memoryview:
    array: Any = data.numpy()
    return memoryview(array)
