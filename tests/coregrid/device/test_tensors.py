"""Tests of tensors on a device: every memory config and format returns the values that were written."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera.coregrid as ttnn
from tessera.coregrid.device.arena import BankPages
from tessera.coregrid.formats import DTYPES, DataType, round_values
from tessera.errors import TesseraError
from tests.coregrid.machines import make_small_machine

MEMORY_CONFIGS = [
    ttnn.DRAM_MEMORY_CONFIG,
    ttnn.L1_MEMORY_CONFIG,
    ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG,
    ttnn.L1_WIDTH_SHARDED_MEMORY_CONFIG,
    ttnn.L1_BLOCK_SHARDED_MEMORY_CONFIG,
]
shapes = st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 70), st.integers(1, 100))


@settings(max_examples=60, deadline=None)
@given(
    shapes,
    st.sampled_from(list(DTYPES.values())),
    st.sampled_from(MEMORY_CONFIGS),
    st.sampled_from(MEMORY_CONFIGS),
    st.booleans(),
)
def test_values_survive_a_round_trip_to_the_device(
    shape: tuple[int, ...], dtype: DataType, first: ttnn.MemoryConfig, second: ttnn.MemoryConfig, tiled: bool
) -> None:
    device = ttnn.open_device(make_small_machine())
    numbers = torch.randn(shape)
    layout = ttnn.TILE_LAYOUT if tiled or dtype.is_block else ttnn.ROW_MAJOR_LAYOUT
    host = ttnn.from_torch(numbers, dtype, layout=layout)
    first_copy = ttnn.to_device(host, device, first)
    second_copy = ttnn.to_memory_config(first_copy, second)
    for tensor in (host, first_copy, second_copy, ttnn.from_device(second_copy)):
        assert torch.equal(ttnn.to_torch(tensor).float(), round_values(numbers, dtype))
    ttnn.deallocate(first_copy)
    ttnn.deallocate(second_copy)
    assert device.arena.used == device.banks.used == 0


def test_pages_are_distributed_round_robin() -> None:
    device = ttnn.open_device("wormhole_n150")
    numbers = torch.randn(40, 8)
    tensor = ttnn.from_torch(numbers, ttnn.float32, device=device)
    pages = tensor.storage.pages
    assert isinstance(pages, BankPages)
    for bank in range(12):
        rows = pages.all[bank::12].contiguous().view(torch.float32)[: len(range(bank, 40, 12)), :8]
        assert torch.equal(rows, numbers[bank::12])


def test_shards_are_on_the_cores_of_the_spec() -> None:
    device = ttnn.open_device(make_small_machine())
    numbers = torch.randn(128, 96)
    cores = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(2, 1))])
    spec = ttnn.ShardSpec(cores, (64, 32), ttnn.ShardOrientation.ROW_MAJOR)
    config = ttnn.MemoryConfig(ttnn.BLOCK_SHARDED, ttnn.BufferType.L1, spec)
    storage = ttnn.from_torch(numbers, ttnn.float32, device=device, memory_config=config).storage
    assert storage.cores == (0, 1, 2, 4, 5, 6)
    assert torch.equal(storage.view(1, 2), numbers[64:, 64:])
    turned = ttnn.ShardSpec(cores, (64, 64), ttnn.ShardOrientation.COL_MAJOR)
    config = ttnn.MemoryConfig(ttnn.BLOCK_SHARDED, ttnn.BufferType.L1, turned)
    storage = ttnn.from_torch(numbers, ttnn.float32, device=device, memory_config=config).storage
    assert storage.cores == (0, 4, 1, 5, 2, 6)  # rows of shards are on columns of cores
    assert torch.equal(storage.view(1, 0), numbers[64:, :64])


def test_invalid_arguments_raise() -> None:
    device = ttnn.open_device(make_small_machine())
    tensor = ttnn.from_torch(torch.randn(64, 64), ttnn.bfloat16, device=device)
    for cores, message in (
        (ttnn.CoreGrid(y=4, x=9), "4x9 cores"),
        (ttnn.CoreGrid(y=1, x=1), "too small for the tensor"),
    ):
        config = ttnn.MemoryConfig(ttnn.HEIGHT_SHARDED, ttnn.BufferType.L1, ttnn.ShardSpec(cores, (32, 64)))
        with pytest.raises(TesseraError, match=message):
            ttnn.to_memory_config(tensor, config)
    with pytest.raises(TesseraError, match="require the tile layout"):
        ttnn.from_torch(torch.randn(4, 4), ttnn.bfloat8_b, layout=ttnn.ROW_MAJOR_LAYOUT)
    ttnn.deallocate(tensor)
    with pytest.raises(TesseraError, match="deallocated"):
        ttnn.to_torch(tensor)
    second = ttnn.from_torch(torch.randn(64, 64), ttnn.bfloat16, device=device)
    ttnn.close_device(device)
    with pytest.raises(TesseraError, match="closed"):
        ttnn.to_torch(second)
    with pytest.raises(TesseraError, match="closed"):
        ttnn.to_device(ttnn.from_torch(torch.randn(4, 4)), device)


@pytest.mark.parametrize("place", MEMORY_CONFIGS)
def test_reshape(place: ttnn.MemoryConfig) -> None:
    device = ttnn.open_device(make_small_machine())
    numbers = torch.randn(2, 3, 8, 32)
    tensor = ttnn.from_torch(numbers, ttnn.float32, device=device, memory_config=place)
    assert torch.equal(ttnn.to_torch(ttnn.reshape(tensor, (1, 1, -1, 32))), numbers.reshape(1, 1, 48, 32))
    assert torch.equal(ttnn.to_torch(ttnn.reshape(tensor, (48 * 2, 16))), numbers.reshape(96, 16))
    with pytest.raises(TesseraError, match="must keep the number"):
        ttnn.reshape(tensor, (5, 5))


def test_out_of_local_memory_is_an_error() -> None:
    device = ttnn.open_device(make_small_machine(memory=8192))
    with pytest.raises(ttnn.OutOfMemory, match="got '12,288 bytes'"):
        ttnn.from_torch(torch.randn(32 * 12 * 3, 32), device=device, memory_config=ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG)
    assert device.arena.used == 0
