"""Rounding to the number formats of a core, bit by bit."""

from __future__ import annotations

import struct

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.coregrid.formats import DataType, Layout, bfloat4_b, bfloat8_b, bfloat16, float32, numbers, rounded, stored

values = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=40)


def bits_of(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def one_by_one(row: list[float], mantissa: int) -> list[float]:
    """The format's definition, in integers."""
    found = []
    for start in range(0, len(row), 16):
        block = [bits_of(v) for v in row[start : start + 16]]
        shared = max(b >> 23 & 0xFF for b in block)
        for b in block:
            exponent, sign = b >> 23 & 0xFF, -1 if b >> 31 else 1
            whole = (b & 0x7FFFFF | 0x800000 if exponent else 0) >> (shared - exponent)
            kept, rest = divmod(whole, 1 << 24 - mantissa)
            tie = 1 << 23 - mantissa
            kept += rest > tie or (rest == tie and kept % 2 == 1)
            kept = min(kept, (1 << mantissa) - 1)
            found.append(sign * kept * 2.0 ** (shared - 126 - mantissa))
    return found


@settings(max_examples=300, deadline=None)
@given(values, st.sampled_from([bfloat8_b, bfloat4_b]))
def test_block_formats_by_their_definition(row: list[float], dtype: DataType) -> None:
    found = rounded(torch.tensor(row, dtype=torch.float32), dtype)
    expected = torch.tensor(one_by_one(row, dtype.mantissa), dtype=torch.float64).to(torch.float32)
    assert torch.equal(found, expected)


@settings(max_examples=50, deadline=None)
@given(values, st.sampled_from([float32, bfloat16, bfloat8_b, bfloat4_b]))
def test_rounding_twice_changes_nothing(row: list[float], dtype: DataType) -> None:
    once = rounded(torch.tensor(row, dtype=torch.float32), dtype)
    assert torch.equal(rounded(once, dtype), once)


@settings(max_examples=50, deadline=None)
@given(values, st.integers(1, 3), st.sampled_from([float32, bfloat16, bfloat8_b, bfloat4_b]))
def test_bytes_there_and_back(row: list[float], rows: int, dtype: DataType) -> None:
    wide = torch.zeros(rows, 64)
    wide[:, : len(row)] = torch.tensor(row, dtype=torch.float32)
    raw = stored(wide, dtype)
    assert raw.shape == (rows, dtype.row_bytes(64))
    assert 32 * raw.shape[1] == 2 * dtype.tile_bytes
    assert torch.equal(numbers(raw, dtype).float(), rounded(wide, dtype))


def test_the_bytes_of_a_block() -> None:
    """An exponent for sixteen numbers, then a byte each: the sign and seven bits."""
    row = torch.zeros(1, 32)
    row[0, :3] = torch.tensor([1.0, -0.5, 0.25])
    raw = stored(row, bfloat8_b)[0].tolist()
    assert raw[:2] == [127, 0]
    assert raw[2:6] == [64, 128 + 32, 16, 0]
    raw = stored(row, bfloat4_b)[0].tolist()
    assert raw[:4] == [127, 0, 4 | (8 + 2) << 4, 1]


@pytest.mark.parametrize("dtype", [bfloat8_b, bfloat4_b])
def test_what_rounds_to_zero_has_no_sign(dtype: DataType) -> None:
    row = torch.zeros(1, 32)
    row[0, :4] = torch.tensor([1.0, -(2.0**-20), -0.0, -1.0])
    raw = stored(row, dtype)[0].tolist()
    kept = raw[2:6] if dtype is bfloat8_b else [raw[2] & 15, raw[2] >> 4, raw[3] & 15, raw[3] >> 4]
    one = 1 << dtype.mantissa - 1
    assert kept == [one, 0, 0, (1 << dtype.mantissa) + one]


def test_blocks_run_along_the_last_dim() -> None:
    small = torch.full((2, 32), 2.0**-10)
    small[0, 0] = 1.0
    found = rounded(small, bfloat8_b)
    assert found[0, 1] == 0  # beside a one it is too small for seven bits
    assert found[0, 16] == found[1, 0] == 2.0**-10


@pytest.mark.parametrize(("dtype", "tile"), [(float32, 4096), (bfloat16, 2048), (bfloat8_b, 1088), (bfloat4_b, 576)])
def test_bytes(dtype: DataType, tile: int) -> None:
    assert dtype.bytes_of(33, 32, Layout.TILE) == 2 * tile
    if not dtype.is_block:
        assert dtype.bytes_of(3, 5, Layout.ROW_MAJOR) == 15 * tile // 1024
