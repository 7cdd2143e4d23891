"""A matrix of any number format in the buffers of one or several cores."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from tessera.coregrid.device.arena import Buffer, CoreArena, StridedCores
from tessera.coregrid.formats import DataType, decode_rows, encode_rows, float32


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferMatrix:
    """One matrix of `rows` x `columns` values per core, stored from byte `start` of a buffer.

    The matrices of all cores together are a tensor `(rows of cores, columns of cores, rows, columns)`.
    """

    arena: CoreArena
    cores: StridedCores
    buffer: Buffer
    dtype: DataType
    rows: int
    columns: int
    start: int = 0

    @property
    def raw(self) -> Tensor:
        """View of the bytes: `(rows of cores, columns of cores, rows, bytes per row)`."""
        shape = self.rows, self.dtype.count_row_bytes(self.columns)
        return self.arena.view_cores(self.cores, self.buffer, torch.uint8, shape, self.start)

    @property
    def typed(self) -> Tensor:
        """View of the values. Block formats are not supported."""
        assert not self.dtype.is_block
        return self.arena.view_cores(self.cores, self.buffer, self.dtype.torch, (self.rows, self.columns), self.start)

    def load_values(self) -> Tensor:
        """Return the values as float32: a view if the format is float32, else a converted copy."""
        if self.dtype is float32:
            return self.typed
        if self.dtype.is_block:
            raw = self.raw
            return decode_rows(raw.reshape(-1, raw.shape[-1]), self.dtype).view(*raw.shape[:-1], -1)
        return self.typed.float()

    def store_values(self, values: Tensor) -> None:
        """Round values to the format and write them to the first columns. Block formats zero the other columns."""
        if self.dtype.is_block:
            padded = F.pad(values, (0, self.columns - values.shape[-1]))
            raw = encode_rows(padded.reshape(-1, self.columns), self.dtype)
            self.raw.copy_(raw.view(*padded.shape[:-1], -1))
        else:
            self.typed[..., : values.shape[-1]].copy_(values)
