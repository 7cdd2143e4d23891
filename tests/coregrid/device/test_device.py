"""Devices are opened by name, used and closed."""

from __future__ import annotations

import pytest
import torch

import tessera.coregrid as ttnn
from tessera.errors import TesseraError
from tests.coregrid.machines import small


@pytest.mark.parametrize(
    ("name", "rows", "cols"), [("wormhole_n150", 8, 8), ("grayskull_e150", 9, 12), ("blackhole-p150", 10, 13)]
)
def test_machines_by_name(name: str, rows: int, cols: int) -> None:
    device = ttnn.open_device(name)
    assert device.compute_with_storage_grid_size() == ttnn.CoreCoord(cols, rows)
    assert device.arena.size == device.machine.local_memory


def test_what_is_set_aside_is_not_there() -> None:
    device = ttnn.open_device(small(memory=65536), l1_small_size=32768)
    assert device.machine.local_memory == device.arena.size == 32768
    with pytest.raises(ttnn.OutOfMemory, match="needs 40,000"):
        device.arena.allocate(40_000, "tensor")
    with pytest.raises(TesseraError, match="leaves some"):
        ttnn.open_device(small(memory=65536), l1_small_size=65536)


@pytest.mark.parametrize(("memory", "reserved"), [(65536, 1000), (65545, 0), (65545, 7)])
def test_a_memory_is_whole_units_of_what_a_core_moves(memory: int, reserved: int) -> None:
    device = ttnn.open_device(small(memory=memory), l1_small_size=reserved)
    assert device.machine.local_memory == device.arena.size == (memory - reserved) // 16 * 16
    assert device.arena.allocate(100, "tensor").place.start % 16 == 0
    with pytest.raises(TesseraError, match="leaves some"):
        ttnn.open_device(small(memory=memory), l1_small_size=memory - 15)


def test_mistakes() -> None:
    with pytest.raises(TesseraError, match="unknown machine"):
        ttnn.open_device("wormhole_n15")
    with pytest.raises(TesseraError, match="device_id=0"):
        ttnn.open_device(device_id=1)
    device = ttnn.open_device(small())
    ttnn.close_device(device)
    ttnn.close_device(device)
    assert repr(device) == "Device(small, 3x4, closed)"
    with pytest.raises(TesseraError, match="closed"):
        ttnn.init_device_compute_kernel_config(device)


def test_settings_of_the_arithmetic() -> None:
    device = ttnn.open_device(small())
    settings = ttnn.init_device_compute_kernel_config(device, math_fidelity=ttnn.MathFidelity.LoFi, packer_l1_acc=True)
    assert settings == ttnn.DeviceComputeKernelConfig(math_fidelity=ttnn.MathFidelity.LoFi, packer_l1_acc=True)


def test_the_ledger_counts_what_moves_on_the_device() -> None:
    device = ttnn.open_device(small())
    tensor = ttnn.from_torch(torch.randn(96, 32), ttnn.float32, device=device)
    assert device.ledger.total == 0  # what comes from the host is not a move of the device
    sharded = ttnn.to_memory_config(tensor, ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG)
    assert device.ledger.global_read == device.ledger.total == 96 * 32 * 4
    ttnn.to_memory_config(sharded, ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG)
    assert device.ledger.local == 96 * 32 * 4
    ttnn.to_memory_config(sharded, ttnn.DRAM_MEMORY_CONFIG)
    assert device.ledger.global_written == 96 * 32 * 4
