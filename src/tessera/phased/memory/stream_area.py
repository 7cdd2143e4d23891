"""The stream area: memory into which phases of any size are loaded, and from which they are dropped.

Two phases in a row lie at opposite ends of the area, so the area need not be larger than the largest sum of two
phases that follow each other.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tessera.phased.memory.arena import MemoryRegion, WorkingArena
from tessera.phased.memory.mapped import MappedReader
from tessera.phased.store.layout import round_up_to_page


class AreaBlock:
    """A part of the area that holds one phase: its region, and the tensor that owns the region's storage."""

    def __init__(self, region: MemoryRegion, start: int, size: int, *, extra: bool = False) -> None:
        self.region, self.start, self.size, self.extra = region, start, size, extra

    @property
    def is_shared(self) -> bool:
        """Whether tensors outside of the engine still use the memory; only valid when its own views are dropped."""
        storage = self.region.data.untyped_storage()
        return bool(torch._C._storage_Use_Count(storage._cdata) > 2)  # the region's own tensor, and `storage`


class StreamArea:
    """Memory of `nbytes` bytes from which blocks are allocated; a mapped file has `regions` blocks of any size."""

    def __init__(self, nbytes: int, mapped: MappedReader | None = None, regions: int = 0) -> None:
        self.nbytes = 0 if mapped is not None else round_up_to_page(nbytes)
        self._mapped = mapped
        self._free_regions = [] if mapped is None else [mapped.get_region() for _ in range(regions)]
        self._arena = None if mapped is not None or not nbytes else WorkingArena([nbytes])
        self._blocks: list[AreaBlock] = []
        self._retired: list[AreaBlock] = []
        self.extra_bytes = 0  # most bytes that were allocated beyond the area
        self._extra: list[AreaBlock] = []

    def allocate(self, size: int, *, number: int = 0, apart_from: AreaBlock | None = None) -> AreaBlock | None:
        """Return a free block, as far from another block as possible; None if no free part is large enough."""
        if self._mapped is not None:
            return AreaBlock(self._free_regions.pop(0), 0, 0) if self._free_regions else None
        self._collect_retired()
        size = round_up_to_page(size)
        holes, end = [], 0
        for block in sorted(self._blocks, key=lambda b: b.start):
            holes.append((end, block.start))
            end = max(end, block.start + block.size)
        holes.append((end, self.nbytes))
        fitting = [(start, stop) for start, stop in holes if stop - start >= size]
        if not fitting:
            return None
        if apart_from is not None and apart_from.start < fitting[-1][1] - size and not apart_from.extra:
            at = fitting[-1][1] - size
        else:
            at = fitting[0][0]
        block = AreaBlock(self._view(at, size), at, size)
        self._blocks.append(block)
        return block

    def allocate_extra(self, size: int, *, number: int = 0) -> AreaBlock:
        """Return a block beyond the area, which is used while the network holds on to weights of other phases."""
        if self._mapped is not None:
            return AreaBlock(self._mapped.get_region(), 0, 0, extra=True)
        [region] = WorkingArena([size]).regions
        block = AreaBlock(region, -1, round_up_to_page(size), extra=True)
        self._extra = [other for other in self._extra if other.is_shared] + [block]
        self.extra_bytes = max(self.extra_bytes, sum(b.size for b in self._extra) + sum(b.size for b in self._retired))
        return block

    def release(self, block: AreaBlock) -> None:
        """Free a block; if tensors of the network still use it, it becomes free when they are deleted."""
        if self._mapped is not None:
            if not block.extra:
                self._free_regions.append(block.region)
        elif block.extra:
            if block.is_shared:
                self._retired.append(block)
        elif block.is_shared:
            self._retired.append(block)
        else:
            self._blocks.remove(block)

    def trim(self) -> None:
        """Return the memory of the free parts of the area to the kernel."""
        if self._arena is None:
            return
        self._collect_retired()
        end = 0
        for block in sorted(self._blocks, key=lambda b: b.start):
            self._arena.discard(end, block.start)
            end = max(end, block.start + block.size)
        self._arena.discard(end, self.nbytes)

    def _collect_retired(self) -> None:
        for block in [block for block in self._retired if not block.is_shared]:
            self._retired.remove(block)
            if not block.extra:
                self._blocks.remove(block)

    def _view(self, at: int, size: int) -> MemoryRegion:
        """Return a region with a storage of its own, whose users can be counted."""
        assert self._arena is not None
        memory = self._arena.regions[0].memory[at : at + size]
        return MemoryRegion(memory, torch.frombuffer(memory, dtype=torch.uint8))


def view_as(region: MemoryRegion, at: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """Return a tensor in a region at a byte offset; an offset that is not aligned to the dtype gives a copy."""
    if at % dtype.itemsize == 0:
        return region.view(at, dtype, shape)
    nbytes = dtype.itemsize * torch.Size(shape).numel()
    return region.data[at : at + nbytes].clone().view(dtype).view(shape)
