"""A matrix in the buffers of cores, in any number format: written and read as numbers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from tessera.coregrid.device.arena import Arena, Buffer, Cores
from tessera.coregrid.formats import DataType, float32, numbers, stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Slab:
    """`rows` x `columns` numbers of a format on every one of some cores, from a byte of a buffer on.

    As a tensor it is `(rows of cores, columns of cores, rows, columns)`.
    """

    arena: Arena
    cores: Cores
    buffer: Buffer
    dtype: DataType
    rows: int
    columns: int
    start: int = 0

    @property
    def raw(self) -> Tensor:
        """Its bytes, row by row."""
        shape = self.rows, self.dtype.row_bytes(self.columns)
        return self.arena.across(self.cores, self.buffer, torch.uint8, shape, self.start)

    @property
    def typed(self) -> Tensor:
        """The numbers where they lie; a plain format's only."""
        assert not self.dtype.is_block
        return self.arena.across(self.cores, self.buffer, self.dtype.torch, (self.rows, self.columns), self.start)

    def load(self) -> Tensor:
        """The numbers as float32: where they lie if that is their format, else a copy, as registers hold it."""
        if self.dtype is float32:
            return self.typed
        if self.dtype.is_block:
            raw = self.raw
            return numbers(raw.reshape(-1, raw.shape[-1]), self.dtype).view(*raw.shape[:-1], -1)
        return self.typed.float()

    def store(self, values: Tensor) -> None:
        """Round numbers to the format and write them as the first columns; a block format's others become zeros."""
        if self.dtype.is_block:
            padded = F.pad(values, (0, self.columns - values.shape[-1]))
            raw = stored(padded.reshape(-1, self.columns), self.dtype)
            self.raw.copy_(raw.view(*padded.shape[:-1], -1))
        else:
            self.typed[..., : values.shape[-1]].copy_(values)
