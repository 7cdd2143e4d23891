"""Shared memory of the ranks of a host: allocated by one rank, mapped by other ranks, addressed by strip."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tessera.errors import TesseraError
from tessera.transport.packing import Copy, join_dims, prepare_copy
from tessera.transport.shared_memory import SharedMemory, SharedMemoryAddress, map_shared_memory

CHUNK_BYTES = 1 << 26  # bytes allocated at a time; pages that are never written use no memory
ALIGNMENT_BYTES = 4096
CACHE_LINE_BYTES = 64


@dataclass(frozen=True, slots=True)
class StripAddress:
    """The location of a strip in its rank's shared memory; the offset is in values, not bytes."""

    address: SharedMemoryAddress
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class SharedArena:
    """The shared memory of one rank, and its mappings of the memory of other ranks."""

    def __init__(self) -> None:
        self._chunks: list[SharedMemory] = []
        self._free: list[tuple[int, int, int]] = []  # unused parts: number of the chunk, first byte, end
        self._neighbours: dict[SharedMemoryAddress, mmap.mmap] = {}

    def allocate(self, count: int, dtype: torch.dtype) -> Tensor:
        """Allocate a one-dimensional tensor in shared memory."""
        size = _round_up(max(1, count) * dtype.itemsize)
        place = next((place for place, (_, start, stop) in enumerate(self._free) if stop - start >= size), None)
        if place is None:
            self._chunks.append(SharedMemory(max(size, CHUNK_BYTES)))
            self._free.append((len(self._chunks) - 1, 0, max(size, CHUNK_BYTES)))
            place = len(self._free) - 1
        chunk, start, stop = self._free.pop(place)
        if stop - start > size:
            self._free.insert(place, (chunk, start + size, stop))
        return self._chunks[chunk].view_tensor(start, max(1, count), dtype)[:count]

    def free(self, tensor: Tensor) -> None:
        """Free the memory of a tensor from `allocate`. No rank may use the tensor afterwards."""
        for number, chunk in enumerate(self._chunks):
            start = tensor.data_ptr() - chunk.start
            if 0 <= start < chunk.address.size:
                stop = start + _round_up(max(1, tensor.numel()) * tensor.itemsize)
                self._free = _merge_adjacent(sorted([*self._free, (number, start, stop)]))

    def free_gathered(self, strips: Sequence[Tensor], gathered: Sequence[Tensor]) -> None:
        """Free the contiguous copies of strips that `gather_strip` allocated."""
        for strip, copy in zip(strips, gathered, strict=True):
            if copy is not strip:
                self.free(copy)

    def gather_strip(self, strip: Tensor, pack: list[Copy]) -> Tensor:
        """Return the strip, or a contiguous copy if the strip is scattered over memory.

        A reader of a scattered strip would fetch a whole cache line per piece, and contend for these lines with this
        rank, which writes its own borders there.
        """
        pieces, _ = join_dims(strip, strip)
        if pieces.stride(-1) == 1 and pieces.shape[-1] * strip.itemsize >= CACHE_LINE_BYTES:
            return strip
        gathered = self.allocate(strip.numel(), strip.dtype).view(strip.shape)
        pack.append(prepare_copy(gathered, strip))
        return gathered

    def locate(self, tensor: Tensor) -> StripAddress:
        """Return the address of a tensor of this arena."""
        for chunk in self._chunks:
            offset = tensor.data_ptr() - chunk.start
            if 0 <= offset < chunk.address.size:
                return StripAddress(chunk.address, offset // tensor.itemsize, tuple(tensor.shape), tensor.stride())
        raise TesseraError("the tensor is not memory of this transport", do="allocate it with `transport.empty`")

    def map_strip(self, strip: StripAddress, dtype: torch.dtype) -> Tensor:
        """Map a neighbour's strip and return it as a tensor."""
        if strip.address not in self._neighbours:
            self._neighbours[strip.address] = map_shared_memory(strip.address)
        whole = torch.frombuffer(self._neighbours[strip.address], dtype=dtype)
        return whole.as_strided(strip.shape, strip.stride, strip.offset)

    def close(self) -> None:
        """Release the memory and all mappings."""
        for chunk in self._chunks:
            chunk.close()
        self._chunks, self._neighbours, self._free = [], {}, []


def _round_up(size: int) -> int:
    return size + -size % ALIGNMENT_BYTES


def _merge_adjacent(parts: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Merge adjacent free parts of the same chunk; `parts` must be sorted."""
    joined: list[tuple[int, int, int]] = []
    for chunk, start, stop in parts:
        if joined and joined[-1][0] == chunk and joined[-1][2] == start:
            joined[-1] = chunk, joined[-1][1], stop
        else:
            joined.append((chunk, start, stop))
    return joined
