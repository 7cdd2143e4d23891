"""Tests of ttnn's rules for memory, shards and arithmetic of a call: what stays, what is freed, what is refused."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import tessera.coregrid as ttnn
from tessera.coregrid.convolution import Convolution
from tessera.errors import TesseraError
from tests.coregrid.machines import make_small_machine
from tests.coregrid.operations.agreement import RandomConv, compute_relative_error

PADDED = ((1, 1), (1, 1))
FLOAT32 = {"dtype": ttnn.float32, "weights_dtype": ttnn.float32}
CONV = Convolution(batch=1, height=16, width=16, in_channels=32, out_channels=32, kernel=(3, 3), padding=PADDED)


def make_device(name: str = "small") -> ttnn.Device:
    return ttnn.open_device(make_small_machine() if name == "small" else name)


@pytest.mark.parametrize("dtype", [ttnn.float32, ttnn.bfloat16])
def test_one_input_channel(dtype: ttnn.DataType) -> None:
    device, images, weight = make_device(), torch.randn(2, 1, 9, 7), torch.randn(8, 1, 3, 3)
    output = ttnn.conv2d(
        ttnn.from_torch(images.permute(0, 2, 3, 1), dtype),
        ttnn.from_torch(weight, dtype),
        1,
        8,
        device,
        kernel_size=(3, 3),
        batch_size=2,
        input_height=9,
        input_width=7,
        conv_config=ttnn.Conv2dConfig(dtype=dtype, weights_dtype=dtype),
    )
    expected = F.conv2d(images, weight).permute(0, 2, 3, 1).reshape(-1, 8).double()
    assert compute_relative_error(ttnn.to_torch(output).reshape(-1, 8), expected) < 0.03


def test_memory_goes_with_the_last_reference() -> None:
    device = make_device()
    tensor = ttnn.from_torch(torch.randn(1, 1, 64, 32), ttnn.float32, device=device)
    view = ttnn.reshape(tensor, (1, 2, 32, 32))
    del tensor
    assert device.banks.used > 0
    del view
    assert device.banks.used == 0


def test_global_memory_survives_deallocate_activation() -> None:
    device, problem = make_device(), RandomConv(CONV)
    arguments = problem.build_arguments(device)
    config = ttnn.Conv2dConfig(**FLOAT32, deallocate_activation=True)
    for place, survives in ((ttnn.DRAM_MEMORY_CONFIG, True), (ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG, False)):
        tensor = ttnn.to_device(arguments["input_tensor"], device, place)
        output = ttnn.conv2d(**arguments | {"input_tensor": tensor, "conv_config": config})
        assert tensor.is_allocated() == survives
        assert compute_relative_error(ttnn.to_torch(output).reshape(-1, 32), problem.compute_reference()) < 1e-5


@pytest.mark.parametrize("reshards", [False, True])
def test_a_sharded_input_stays_unless_it_may_be_resharded(reshards: bool) -> None:
    device, problem = make_device(), RandomConv(CONV)
    arguments = problem.build_arguments(device)
    grid = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(1, 1), ttnn.CoreCoord(2, 1))])
    place = ttnn.MemoryConfig(ttnn.HEIGHT_SHARDED, ttnn.BufferType.L1, ttnn.ShardSpec(grid, (128, 32)))
    tensor = ttnn.to_device(arguments["input_tensor"], device, place)
    config = ttnn.Conv2dConfig(**FLOAT32, reshard_if_not_optimal=reshards)
    output = ttnn.conv2d(**arguments | {"input_tensor": tensor, "conv_config": config})
    cores = output.memory_config().shard_spec.grid
    assert cores.size == (8 if reshards else 2)
    assert (cores == grid) != reshards
    assert compute_relative_error(ttnn.to_torch(output).reshape(-1, 32), problem.compute_reference()) < 1e-5


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("orientation", list(ttnn.ShardOrientation))
def test_blocks_of_the_input_stay(kernel: int, orientation: ttnn.ShardOrientation) -> None:
    padding = PADDED if kernel == 3 else ((0, 0), (0, 0))
    conv = Convolution(
        batch=1, height=16, width=16, in_channels=64, out_channels=96, kernel=(kernel, kernel), padding=padding
    )
    device, problem = make_device(), RandomConv(conv)
    arguments = problem.build_arguments(device)
    by_rows = orientation is ttnn.ShardOrientation.ROW_MAJOR
    grid = ttnn.CoreGrid(y=2, x=2) if by_rows else ttnn.CoreGrid(y=2, x=4)
    shape = (128, 32) if by_rows else (64, 32)
    place = ttnn.MemoryConfig(ttnn.BLOCK_SHARDED, ttnn.BufferType.L1, ttnn.ShardSpec(grid, shape, orientation))
    tensor = ttnn.to_device(ttnn.to_layout(arguments["input_tensor"], ttnn.TILE_LAYOUT), device, place)
    output = ttnn.conv2d(**arguments | {"input_tensor": tensor, "conv_config": ttnn.Conv2dConfig(**FLOAT32)})
    assert output.memory_config().shard_spec.orientation is orientation
    assert compute_relative_error(ttnn.to_torch(output).reshape(-1, 96), problem.compute_reference()) < 1e-5


def test_cores_that_are_no_rectangle() -> None:
    device, problem = make_device(), RandomConv(CONV)
    grid = ttnn.CoreRangeSet(
        [
            ttnn.CoreRange(ttnn.CoreCoord(0, 1), ttnn.CoreCoord(3, 1)),
            ttnn.CoreRange(ttnn.CoreCoord(1, 2), ttnn.CoreCoord(2, 2)),
        ]
    )
    config = ttnn.Conv2dConfig(**FLOAT32, shard_layout="HEIGHT", core_grid=grid, override_sharding_config=True)
    output = ttnn.conv2d(**problem.build_arguments(device) | {"conv_config": config})
    assert output.memory_config().shard_spec.grid == grid
    assert compute_relative_error(ttnn.to_torch(output).reshape(-1, 32), problem.compute_reference()) < 1e-5


def test_narrow_weights_are_padded() -> None:
    device, images, weight = make_device(), torch.randn(1, 8, 8, 16), torch.randn(32, 12, 3, 3)
    output = ttnn.conv2d(
        ttnn.from_torch(images),
        ttnn.from_torch(weight),
        16,
        32,
        device,
        kernel_size=(3, 3),
        input_height=8,
        input_width=8,
        conv_config=ttnn.Conv2dConfig(**FLOAT32),
    )
    expected = F.conv2d(images[..., :12].permute(0, 3, 1, 2), weight).permute(0, 2, 3, 1).reshape(-1, 32)
    assert compute_relative_error(ttnn.to_torch(output).reshape(-1, 32), expected.double()) < 1e-5


def test_float32_operands_accumulate_in_float32() -> None:
    conv = Convolution(batch=1, height=8, width=8, in_channels=256, out_channels=32, kernel=(3, 3))
    problem, device = RandomConv(conv), make_device("wormhole_n150")
    config = ttnn.Conv2dConfig(dtype=ttnn.bfloat16, weights_dtype=ttnn.float32)
    by_default, wide, narrow = (
        problem.run(device, conv_config=config, compute_config=compute)
        for compute in (None, ttnn.ComputeConfig(fp32_dest_acc_en=True), ttnn.ComputeConfig())
    )
    assert torch.equal(by_default, wide)
    assert not torch.equal(by_default, narrow)


def test_packer_accumulation_requires_several_inner_blocks() -> None:
    """Partial sums of one inner block are aliased with the output, also with packer_l1_acc."""
    machine = ttnn.open_device("wormhole_n150").machine
    conv = Convolution(batch=16, height=28, width=28, in_channels=256, out_channels=512, kernel=(1, 1), stride=(2, 2))
    config = ttnn.Conv2dConfig(dtype=ttnn.bfloat8_b, weights_dtype=ttnn.bfloat8_b, shard_layout="HEIGHT")
    for kernel, partials in (((1, 1), 0), ((3, 3), 1)):
        shape = Convolution(**{**{name: getattr(conv, name) for name in conv.__slots__}, "kernel": kernel})
        plan = ttnn.plan_one(shape, machine, config, ttnn.ComputeConfig(packer_l1_acc=True), bias=True)
        assert bool(plan.footprint.partials) == bool(partials)


@pytest.mark.parametrize("setting", ["fp32_dest_acc_en", "packer_l1_acc"])
def test_grayskull_refuses_accumulation_settings(setting: str) -> None:
    device, problem = ttnn.open_device("grayskull_e150"), RandomConv(CONV)
    with pytest.raises(TesseraError, match="Grayskull supports neither"):
        ttnn.init_device_compute_kernel_config(device, **{setting: True})
    compute = ttnn.ComputeConfig(**{setting: True})
    with pytest.raises(TesseraError, match="Grayskull supports neither"):
        ttnn.conv2d(**problem.build_arguments(device), compute_config=compute)
    assert device.arena.used == device.banks.used == 0


def test_usable_memory_is_the_allocators() -> None:
    assert ttnn.open_device("wormhole_n150").arena.size == 1_393_312
    assert ttnn.open_device("blackhole_p150").arena.size == 1_461_120
