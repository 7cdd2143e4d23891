"""Number formats of a core: how many bytes a tile takes, what rounding does to the numbers, and their very bytes.

The block formats keep sixteen neighbours of a row with one exponent, the largest of theirs: each has a sign and
seven (or three) bits of mantissa, the leading one included.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cache

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

    def row_bytes(self, columns: int) -> int:
        """What a row of a matrix takes; rows of a block format are whole tiles wide."""
        if self.is_block:
            return -(-columns // TILE) * self.tile_bytes // TILE
        return columns * self.torch.itemsize

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
    if not dtype.is_block:
        return values.to(dtype.torch).to(torch.float32)
    columns = values.shape[-1]
    padded = torch.nn.functional.pad(values, (0, -columns % BLOCK))
    sign, kept, shared = _blocks(padded, dtype.mantissa)
    found = _scaled(sign, kept, shared, dtype.mantissa)
    return found.flatten(-2)[..., :columns].reshape(values.shape)


def stored(values: Tensor, dtype: DataType) -> Tensor:
    """The bytes of a matrix of numbers, a row of them for each of its rows.

    Thirty-two columns at a time, of a block format two exponents and then the mantissas: so thirty-two rows of
    thirty-two columns are just the bytes of a tile. Block formats need whole tiles of columns.
    """
    rows = values.shape[0]
    if not dtype.is_block:
        return values.to(dtype.torch).contiguous().view(torch.uint8).view(rows, -1)
    assert values.shape[1] % TILE == 0, "block formats come in whole tiles"
    sign, kept, shared = _blocks(values.to(torch.float32), dtype.mantissa)
    whole = (sign << dtype.mantissa | kept).view(rows, -1, TILE)
    if dtype.mantissa == 3:  # two to a byte, the first in the low half
        whole = whole[..., 0::2] | whole[..., 1::2] << 4
    exponents = shared.view(rows, -1, TILE // BLOCK)
    return torch.cat([exponents, whole], -1).to(torch.uint8).view(rows, -1)


def numbers(raw: Tensor, dtype: DataType) -> Tensor:
    """The numbers in the bytes of a matrix, as `stored` makes them; those of a block format as float32."""
    rows = raw.shape[0]
    if not dtype.is_block:
        return raw.contiguous().view(dtype.torch).view(rows, -1)
    chunks = raw.reshape(rows, -1, dtype.tile_bytes // TILE)
    exponents, whole = chunks[..., : TILE // BLOCK], chunks[..., TILE // BLOCK :]
    if dtype.mantissa == 3:
        whole = torch.stack([whole & 15, whole >> 4], -1).flatten(-2)
    whole = whole.reshape(rows, -1, BLOCK)
    kept = whole & (1 << dtype.mantissa) - 1
    return _scaled(whole >> dtype.mantissa, kept, exponents.reshape(rows, -1), dtype.mantissa).view(rows, -1)


def _blocks(values: Tensor, mantissa: int) -> tuple[Tensor, Tensor, Tensor]:
    """Signs and mantissas of sixteen neighbours along the last dim (`..., blocks, 16`), and the exponents they share.

    Each mantissa is moved to the exponent of the largest by cutting bits off, then rounded to nearest, ties to even;
    one that would need a bit more stays at the largest there is. What becomes zero has no sign.
    """
    bits = values.contiguous().view(torch.int32).view(*values.shape[:-1], -1, BLOCK)
    exponent = (bits >> 23) & 0xFF
    shared = exponent.amax(-1, keepdim=True)
    whole = torch.where(exponent > 0, (bits & 0x7FFFFF) | 0x800000, 0)
    moved = whole >> (shared - exponent).clamp(max=31)
    cut = 24 - mantissa
    rest, kept = moved & ((1 << cut) - 1), moved >> cut
    tie = 1 << (cut - 1)
    up = (rest > tie) | ((rest == tie) & (kept & 1 == 1))
    kept = (kept + up.to(torch.int32)).clamp(max=(1 << mantissa) - 1)
    return ((bits < 0) & (kept > 0)).to(torch.int32), kept, shared.squeeze(-1)


def _scaled(sign: Tensor, kept: Tensor, shared: Tensor, mantissa: int) -> Tensor:
    """Numbers from signs and mantissas `(..., blocks, 16)` and the exponents `(..., blocks)` that they share."""
    found = kept.to(torch.float32) * _powers(mantissa)[shared.to(torch.int64)].unsqueeze(-1)
    return torch.where(sign > 0, -found, found)


@cache
def _powers(mantissa: int) -> Tensor:
    """What the last bit of a mantissa is worth, by the exponent: 2 ** (exponent - 127 - (mantissa - 1))."""
    exponents = torch.arange(256, dtype=torch.int32) - 126 - mantissa
    return torch.ldexp(torch.ones(256, dtype=torch.float64), exponents).to(torch.float32)
