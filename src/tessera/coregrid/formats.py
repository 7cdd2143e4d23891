"""Number formats of a core: how many bytes a tile takes, and what rounding to a format does to the numbers.

The block formats keep sixteen neighbours of a row with one exponent, the largest of theirs: each has a sign and
seven (or three) bits of mantissa, the leading one included.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

TILE = 32
BLOCK = 16  # numbers that share an exponent


class Layout(Enum):
    """How a tensor lies in memory: row after row, or in tiles of 32 x 32."""

    ROW_MAJOR = "row_major"
    TILE = "tile"


@dataclass(frozen=True, slots=True)
class DataType:
    """A number format: `mantissa` is the number of bits of a block format, 0 for plain ones."""

    name: str
    tile_bytes: int
    torch: torch.dtype
    mantissa: int = 0

    @property
    def is_block(self) -> bool:
        return self.mantissa > 0

    def bytes_of(self, rows: int, columns: int, layout: Layout) -> int:
        """What a matrix takes; block formats exist in tiles only."""
        if layout is Layout.ROW_MAJOR and not self.is_block:
            return rows * columns * self.torch.itemsize
        return -(-rows // TILE) * -(-columns // TILE) * self.tile_bytes

    def __repr__(self) -> str:
        return self.name


float32 = DataType("float32", 4096, torch.float32)
bfloat16 = DataType("bfloat16", 2048, torch.bfloat16)
bfloat8_b = DataType("bfloat8_b", 1088, torch.float32, mantissa=7)
bfloat4_b = DataType("bfloat4_b", 576, torch.float32, mantissa=3)
DTYPES = {dtype.name: dtype for dtype in (float32, bfloat16, bfloat8_b, bfloat4_b)}


def rounded(values: Tensor, dtype: DataType) -> Tensor:
    """The numbers that a tensor of this format holds, as float32.

    >>> rounded(torch.tensor([1.0, 0.3]), bfloat16)
    tensor([1.0000, 0.3008])
    """
    values = values.to(torch.float32)
    if dtype.is_block:
        return _shared_exponent(values, dtype.mantissa)
    return values.to(dtype.torch).to(torch.float32)


def _shared_exponent(values: Tensor, mantissa: int) -> Tensor:
    """Sixteen neighbours along the last dim with the exponent of the largest of them.

    Each mantissa is moved to that exponent by cutting bits off, then rounded to nearest, ties to even; one that
    would need a bit more stays at the largest there is.
    """
    columns = values.shape[-1]
    padded = torch.nn.functional.pad(values, (0, -columns % BLOCK)).contiguous()
    bits = padded.view(torch.int32).view(*padded.shape[:-1], -1, BLOCK)
    exponent = (bits >> 23) & 0xFF
    shared = exponent.amax(-1, keepdim=True)
    whole = torch.where(exponent > 0, (bits & 0x7FFFFF) | 0x800000, 0)
    moved = whole >> (shared - exponent).clamp(max=31)
    cut = 24 - mantissa
    rest, kept = moved & ((1 << cut) - 1), moved >> cut
    tie = 1 << (cut - 1)
    up = (rest > tie) | ((rest == tie) & (kept & 1 == 1))
    kept = (kept + up.to(torch.int32)).clamp(max=(1 << mantissa) - 1)
    # a value is kept * 2 ** (exponent - 127 - (mantissa - 1))
    found = torch.ldexp(kept.to(torch.float64), shared - 126 - mantissa).to(torch.float32)
    found = torch.where(bits < 0, -found, found)
    return found.flatten(-2)[..., :columns].reshape(values.shape)
