"""Tests of out-of-memory errors: messages, and release of the memory of a failed operation."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import tessera.coregrid as ttnn
from tessera.coregrid.convolution import Convolution
from tessera.errors import TesseraError
from tests.coregrid.machines import make_small_machine
from tests.coregrid.operations.agreement import RandomConv

float32 = {"dtype": ttnn.float32, "weights_dtype": ttnn.float32}
PADDED = ((1, 1), (1, 1))
PLACES = [
    ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG,
    ttnn.L1_WIDTH_SHARDED_MEMORY_CONFIG,
    ttnn.L1_BLOCK_SHARDED_MEMORY_CONFIG,
    ttnn.DRAM_MEMORY_CONFIG,
]
ONE_TILE = ttnn.MemoryConfig(ttnn.HEIGHT_SHARDED, ttnn.BufferType.L1, ttnn.ShardSpec(ttnn.CoreGrid(y=1, x=1), (32, 32)))


def test_out_of_memory_names_required_memory_and_a_setting() -> None:
    conv = Convolution(batch=1, height=64, width=64, in_channels=32, out_channels=32, kernel=(3, 3), padding=PADDED)
    device, problem = ttnn.open_device(make_small_machine(memory=250_000)), RandomConv(conv)
    arguments = problem.build_arguments(device)
    lying = ttnn.to_device(arguments["input_tensor"], device, ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG)
    config = ttnn.Conv2dConfig(**float32)
    with pytest.raises(ttnn.OutOfMemory, match=r"does not fit: needs .* MiB per core, has .*saves"):
        ttnn.conv2d(**arguments | {"input_tensor": lying, "conv_config": config})
    # the convolution fits an empty device, but not a device with another tensor
    device = ttnn.open_device(make_small_machine())
    arguments = problem.build_arguments(device)
    ttnn.to_device(arguments["input_tensor"], device, ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG)
    held = [device.arena.allocate(1 << 16, "ballast") for _ in range(11)]
    with pytest.raises(
        ttnn.OutOfMemory, match=r"core \(0, 0\).*got '[\d,]+ bytes'.*allowed: up to .*free other tensors"
    ):
        ttnn.conv2d(**arguments | {"conv_config": ttnn.Conv2dConfig(**float32, shard_layout=ttnn.HEIGHT_SHARDED)})
    used = device.arena.used
    for buffer in held:
        device.arena.free(buffer)
    assert device.arena.used == used - 11 * (1 << 16)
    assert device.banks.used == 0


def test_slices_that_do_not_fit_name_a_setting() -> None:
    conv = Convolution(batch=1, height=96, width=64, in_channels=32, out_channels=32, kernel=(3, 3), padding=PADDED)
    device, problem = ttnn.open_device(make_small_machine(memory=200_000)), RandomConv(conv)
    config = ttnn.Conv2dConfig(**float32, shard_layout=ttnn.HEIGHT_SHARDED)
    with pytest.raises(ttnn.OutOfMemory, match=r"does not fit: needs .*saves .* MiB .*; more slices need less memory"):
        problem.run(device, conv_config=config, slice_config=ttnn.SliceConfig(axis="height", num_slices=2))
    held = device.arena.allocate(150_000, "ballast")
    with pytest.raises(ttnn.OutOfMemory, match="free other tensors; HEIGHT fits"):
        problem.run(device, conv_config=config)
    device.arena.free(held)
    assert device.arena.used == device.banks.used == 0


@pytest.mark.parametrize("keeps", [True, False])
def test_output_out_of_memory_frees_everything(keeps: bool) -> None:
    conv = Convolution(batch=1, height=8, width=8, in_channels=8, out_channels=40, kernel=(3, 3))
    device, problem = ttnn.open_device(make_small_machine()), RandomConv(conv)
    with pytest.raises(TesseraError, match="too small for the tensor"):
        ttnn.conv2d(**problem.build_arguments(device), memory_config=ONE_TILE, return_weights_and_bias=keeps)
    assert device.arena.used == device.banks.used == 0


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "works",
    [
        lambda tensor, where: ttnn.max_pool2d(tensor, 1, 16, 16, 64, (3, 3), (1, 1), (1, 1), memory_config=where),
        lambda tensor, where: ttnn.upsample(tensor, 2, memory_config=where),
    ],
)
@pytest.mark.parametrize("full", [True, False])
def test_operations_out_of_memory_free_everything(
    works: Callable[[ttnn.Tensor, ttnn.MemoryConfig], ttnn.Tensor], place: ttnn.MemoryConfig, full: bool
) -> None:
    """Test operations in a nearly full memory (`full`), and with an output that does not fit."""
    device = ttnn.open_device(make_small_machine())
    tensor = ttnn.from_torch(torch.randn(1, 16, 16, 64), ttnn.float32, device=device, memory_config=place)
    if full:
        device.arena.allocate(device.arena.size - device.arena.used - 16_400, "ballast")
    before = device.arena.used, device.banks.used
    with pytest.raises(TesseraError):
        works(tensor, ONE_TILE)
    assert (device.arena.used, device.banks.used) == before


@pytest.mark.parametrize("place", PLACES)
def test_add_out_of_memory_frees_everything(place: ttnn.MemoryConfig) -> None:
    device = ttnn.open_device(make_small_machine())
    left, right = (
        ttnn.from_torch(torch.randn(1, 1, 12 * 32, 64), ttnn.float32, device=device, memory_config=where)
        for where in (place, ttnn.DRAM_MEMORY_CONFIG)
    )
    shard = left.storage.bytes if left.is_sharded() else 8192
    device.arena.allocate(
        device.arena.size - device.arena.used - shard - 16, "ballast"
    )  # memory for one shard, not for two
    before = device.arena.used, device.banks.used
    with pytest.raises(ttnn.OutOfMemory):
        ttnn.add(left, right)
    assert (device.arena.used, device.banks.used) == before
