"""Tests of rounding to the number formats of a core, bit by bit."""

from __future__ import annotations

import struct

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.coregrid.formats import (
    DataType,
    Layout,
    bfloat4_b,
    bfloat8_b,
    bfloat16,
    decode_rows,
    encode_rows,
    float32,
    round_values,
)

values = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=40)


def get_bits(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def round_one_by_one(row: list[float], mantissa: int) -> list[float]:
    """Round values to a block format with `mantissa` bits, by its definition, in integer arithmetic."""
    result = []
    for start in range(0, len(row), 16):
        block = [get_bits(v) for v in row[start : start + 16]]
        shared = max(b >> 23 & 0xFF for b in block)
        for b in block:
            exponent, sign = b >> 23 & 0xFF, -1 if b >> 31 else 1
            whole = (b & 0x7FFFFF | 0x800000 if exponent else 0) >> (shared - exponent)
            kept, rest = divmod(whole, 1 << 24 - mantissa)
            tie = 1 << 23 - mantissa
            kept += rest > tie or (rest == tie and kept % 2 == 1)
            kept = min(kept, (1 << mantissa) - 1)
            result.append(sign * kept * 2.0 ** (shared - 126 - mantissa))
    return result


@settings(max_examples=300, deadline=None)
@given(values, st.sampled_from([bfloat8_b, bfloat4_b]))
def test_block_formats_by_their_definition(row: list[float], dtype: DataType) -> None:
    rounded = round_values(torch.tensor(row, dtype=torch.float32), dtype)
    expected = torch.tensor(round_one_by_one(row, dtype.mantissa), dtype=torch.float64).to(torch.float32)
    assert torch.equal(rounded, expected)


@settings(max_examples=50, deadline=None)
@given(values, st.sampled_from([float32, bfloat16, bfloat8_b, bfloat4_b]))
def test_rounding_twice_changes_nothing(row: list[float], dtype: DataType) -> None:
    once = round_values(torch.tensor(row, dtype=torch.float32), dtype)
    assert torch.equal(round_values(once, dtype), once)


@settings(max_examples=50, deadline=None)
@given(values, st.integers(1, 3), st.sampled_from([float32, bfloat16, bfloat8_b, bfloat4_b]))
def test_encoding_round_trip(row: list[float], rows: int, dtype: DataType) -> None:
    wide = torch.zeros(rows, 64)
    wide[:, : len(row)] = torch.tensor(row, dtype=torch.float32)
    raw = encode_rows(wide, dtype)
    assert raw.shape == (rows, dtype.count_row_bytes(64))
    assert 32 * raw.shape[1] == 2 * dtype.tile_bytes
    assert torch.equal(decode_rows(raw, dtype).float(), round_values(wide, dtype))


def test_the_bytes_of_a_block() -> None:
    """Check the bytes of a row: one exponent per 16 numbers, then one byte (sign and seven bits) per number."""
    row = torch.zeros(1, 32)
    row[0, :3] = torch.tensor([1.0, -0.5, 0.25])
    raw = encode_rows(row, bfloat8_b)[0].tolist()
    assert raw[:2] == [127, 0]
    assert raw[2:6] == [64, 128 + 32, 16, 0]
    raw = encode_rows(row, bfloat4_b)[0].tolist()
    assert raw[:4] == [127, 0, 4 | (8 + 2) << 4, 1]


@pytest.mark.parametrize("dtype", [bfloat8_b, bfloat4_b])
def test_values_rounded_to_zero_have_no_sign(dtype: DataType) -> None:
    row = torch.zeros(1, 32)
    row[0, :4] = torch.tensor([1.0, -(2.0**-20), -0.0, -1.0])
    raw = encode_rows(row, dtype)[0].tolist()
    kept = raw[2:6] if dtype is bfloat8_b else [raw[2] & 15, raw[2] >> 4, raw[3] & 15, raw[3] >> 4]
    smallest = 1 << dtype.mantissa - 1
    assert kept == [smallest, 0, 0, (1 << dtype.mantissa) + smallest]


def test_blocks_run_along_the_last_dim() -> None:
    small = torch.full((2, 32), 2.0**-10)
    small[0, 0] = 1.0
    rounded = round_values(small, bfloat8_b)
    assert rounded[0, 1] == 0  # 2^-10 needs more than seven bits next to 1.0
    assert rounded[0, 16] == rounded[1, 0] == 2.0**-10


@pytest.mark.parametrize(("dtype", "tile"), [(float32, 4096), (bfloat16, 2048), (bfloat8_b, 1088), (bfloat4_b, 576)])
def test_bytes(dtype: DataType, tile: int) -> None:
    assert dtype.count_bytes(33, 32, Layout.TILE) == 2 * tile
    if not dtype.is_block:
        assert dtype.count_bytes(3, 5, Layout.ROW_MAJOR) == 15 * tile // 1024
