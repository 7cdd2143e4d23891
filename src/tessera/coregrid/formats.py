"""Number formats of a core: bytes per tile, rounding, and encoding to bytes.

In a block format, 16 adjacent values of a row share one exponent, the largest of the 16. Each value has a sign bit and
seven (or three) mantissa bits, including the leading bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cache

import torch
from torch import Tensor

TILE_SIZE = 32  # rows and columns of a tile
VALUES_PER_EXPONENT = 16


class Layout(Enum):
    """Memory layout of a tensor: row by row, or in tiles of 32 x 32."""

    ROW_MAJOR = "row_major"
    TILE = "tile"


@dataclass(frozen=True, slots=True)
class DataType:
    """A number format. `mantissa` is the number of mantissa bits of a block format, and 0 for plain formats."""

    name: str
    tile_bytes: int
    torch: torch.dtype
    mantissa: int = 0

    @property
    def is_block(self) -> bool:
        return self.mantissa > 0

    def count_bytes(self, rows: int, columns: int, layout: Layout) -> int:
        """Return the size of a matrix in bytes. Block formats require the tile layout."""
        if layout is Layout.ROW_MAJOR and not self.is_block:
            return rows * columns * self.torch.itemsize
        return -(-rows // TILE_SIZE) * -(-columns // TILE_SIZE) * self.tile_bytes

    def count_row_bytes(self, columns: int) -> int:
        """Return the size of a matrix row in bytes. Rows of a block format are padded to whole tiles."""
        if self.is_block:
            return -(-columns // TILE_SIZE) * self.tile_bytes // TILE_SIZE
        return columns * self.torch.itemsize

    def __repr__(self) -> str:
        return self.name


float32 = DataType("float32", 4096, torch.float32)
bfloat16 = DataType("bfloat16", 2048, torch.bfloat16)
bfloat8_b = DataType("bfloat8_b", 1088, torch.float32, mantissa=7)
bfloat4_b = DataType("bfloat4_b", 576, torch.float32, mantissa=3)
# Placeholder in a config: the format of the tensor, which is known when the operation is called.
tensor_dtype = DataType("as the tensor", 0, torch.float32)
DTYPES = {dtype.name: dtype for dtype in (float32, bfloat16, bfloat8_b, bfloat4_b)}


def round_values(values: Tensor, dtype: DataType) -> Tensor:
    """Round values to a format and return them as float32.

    >>> round_values(torch.tensor([1.0, 0.3]), bfloat16)
    tensor([1.0000, 0.3008])
    """
    values = values.to(torch.float32)
    if not dtype.is_block:
        return values.to(dtype.torch).to(torch.float32)
    columns = values.shape[-1]
    padded = torch.nn.functional.pad(values, (0, -columns % VALUES_PER_EXPONENT))
    sign, mantissas, shared = _split_into_blocks(padded, dtype.mantissa)
    values_out = _scale_mantissas(sign, mantissas, shared, dtype.mantissa)
    return values_out.flatten(-2)[..., :columns].reshape(values.shape)


def encode_rows(values: Tensor, dtype: DataType) -> Tensor:
    """Encode a matrix as bytes, one row of bytes per matrix row.

    Each group of 32 columns of a block format is encoded as two exponents followed by the mantissas, so 32 rows of 32
    columns take exactly the bytes of one tile. The columns of a block format must be a multiple of 32.
    """
    rows = values.shape[0]
    if not dtype.is_block:
        plain = values.to(dtype.torch).contiguous()
        if plain.stride(-1) != 1:  # torch calls a tensor with one column contiguous whatever its stride is
            plain = plain.clone(memory_format=torch.contiguous_format)
        return plain.view(torch.uint8).view(rows, -1)
    assert values.shape[1] % TILE_SIZE == 0, "block formats require whole tiles"
    sign, mantissas, shared = _split_into_blocks(values.to(torch.float32), dtype.mantissa)
    whole = (sign << dtype.mantissa | mantissas).view(rows, -1, TILE_SIZE)
    if dtype.mantissa == 3:  # two values per byte, the first value in the low four bits
        whole = whole[..., 0::2] | whole[..., 1::2] << 4
    exponents = shared.view(rows, -1, TILE_SIZE // VALUES_PER_EXPONENT)
    return torch.cat([exponents, whole], -1).to(torch.uint8).view(rows, -1)


def decode_rows(raw: Tensor, dtype: DataType) -> Tensor:
    """Decode bytes in the encoding of `encode_rows` to a matrix. Block formats are returned as float32."""
    rows = raw.shape[0]
    if not dtype.is_block:
        return raw.contiguous().view(dtype.torch).view(rows, -1)
    chunks = raw.reshape(rows, -1, dtype.tile_bytes // TILE_SIZE)
    exponents, whole = chunks[..., : TILE_SIZE // VALUES_PER_EXPONENT], chunks[..., TILE_SIZE // VALUES_PER_EXPONENT :]
    if dtype.mantissa == 3:
        whole = torch.stack([whole & 15, whole >> 4], -1).flatten(-2)
    whole = whole.reshape(rows, -1, VALUES_PER_EXPONENT)
    mantissas = whole & (1 << dtype.mantissa) - 1
    return _scale_mantissas(whole >> dtype.mantissa, mantissas, exponents.reshape(rows, -1), dtype.mantissa).view(
        rows, -1
    )


def _split_into_blocks(values: Tensor, mantissa: int) -> tuple[Tensor, Tensor, Tensor]:
    """Split the last dim into blocks of 16; return signs and mantissas `(..., blocks, 16)`, exponents `(..., blocks)`.

    Each mantissa is shifted to the largest exponent of its block, then rounded to nearest, ties to even. A mantissa
    that would overflow is clamped. A value that is rounded to zero becomes +0.
    """
    bits = values.contiguous().view(torch.int32).view(*values.shape[:-1], -1, VALUES_PER_EXPONENT)
    exponent = (bits >> 23) & 0xFF
    shared = exponent.amax(-1, keepdim=True)
    whole = torch.where(exponent > 0, (bits & 0x7FFFFF) | 0x800000, 0)
    shifted = whole >> (shared - exponent).clamp(max=31)
    dropped = 24 - mantissa
    rest, mantissas = shifted & ((1 << dropped) - 1), shifted >> dropped
    tie = 1 << (dropped - 1)
    up = (rest > tie) | ((rest == tie) & (mantissas & 1 == 1))
    mantissas = (mantissas + up.to(torch.int32)).clamp(max=(1 << mantissa) - 1)
    return ((bits < 0) & (mantissas > 0)).to(torch.int32), mantissas, shared.squeeze(-1)


def _scale_mantissas(sign: Tensor, mantissas: Tensor, shared: Tensor, mantissa: int) -> Tensor:
    """Return the values with given signs and mantissas `(..., blocks, 16)` and shared exponents `(..., blocks)`."""
    values = mantissas.to(torch.float32) * _get_last_bit_values(mantissa)[shared.to(torch.int64)].unsqueeze(-1)
    return torch.where(sign > 0, -values, values)


@cache
def _get_last_bit_values(mantissa: int) -> Tensor:
    """Return the value of the last mantissa bit for every exponent: 2 ** (exponent - 127 - (mantissa - 1))."""
    exponents = torch.arange(256, dtype=torch.int32) - 126 - mantissa
    return torch.ldexp(torch.ones(256, dtype=torch.float64), exponents).to(torch.float32)
