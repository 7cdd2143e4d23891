"""Tests of opening, using and closing devices."""

from __future__ import annotations

import pytest
import torch

import tessera.coregrid as ttnn
from tessera.errors import TesseraError
from tests.coregrid.machines import make_small_machine


@pytest.mark.parametrize(
    ("name", "rows", "cols"), [("wormhole_n150", 8, 8), ("grayskull_e150", 9, 12), ("blackhole-p150", 10, 13)]
)
def test_devices_open_by_machine_name(name: str, rows: int, cols: int) -> None:
    device = ttnn.open_device(name)
    assert device.compute_with_storage_grid_size() == ttnn.CoreCoord(cols, rows)
    assert device.arena.size == device.machine.local_memory


def test_reserved_bytes_are_not_available() -> None:
    device = ttnn.open_device(make_small_machine(memory=65536), l1_small_size=32768)
    assert device.machine.local_memory == device.arena.size == 32768
    with pytest.raises(ttnn.OutOfMemory, match="got '40,000 bytes'"):
        device.arena.allocate(40_000, "tensor")
    with pytest.raises(TesseraError, match="must be less than"):
        ttnn.open_device(make_small_machine(memory=65536), l1_small_size=65536)


@pytest.mark.parametrize(("memory", "reserved"), [(65536, 1000), (65545, 0), (65545, 7)])
def test_memory_size_is_aligned(memory: int, reserved: int) -> None:
    device = ttnn.open_device(make_small_machine(memory=memory), l1_small_size=reserved)
    assert device.machine.local_memory == device.arena.size == (memory - reserved) // 16 * 16
    assert device.arena.allocate(100, "tensor").place.start % 16 == 0
    with pytest.raises(TesseraError, match="must be less than"):
        ttnn.open_device(make_small_machine(memory=memory), l1_small_size=memory - 15)


def test_invalid_arguments_raise() -> None:
    with pytest.raises(TesseraError, match="unknown machine"):
        ttnn.open_device("wormhole_n15")
    with pytest.raises(TesseraError, match=r"unknown device_id.*allowed: 0"):
        ttnn.open_device(device_id=1)
    device = ttnn.open_device(make_small_machine())
    ttnn.close_device(device)
    ttnn.close_device(device)
    assert repr(device) == "Device(small, 3x4, closed)"
    with pytest.raises(TesseraError, match="closed"):
        ttnn.init_device_compute_kernel_config(device)


def test_compute_config_of_a_device() -> None:
    device = ttnn.open_device(make_small_machine())
    settings = ttnn.init_device_compute_kernel_config(device, math_fidelity=ttnn.MathFidelity.LoFi, packer_l1_acc=True)
    assert settings == ttnn.DeviceComputeKernelConfig(math_fidelity=ttnn.MathFidelity.LoFi, packer_l1_acc=True)


def test_ledger_counts_bytes_moved_on_the_device() -> None:
    device = ttnn.open_device(make_small_machine())
    tensor = ttnn.from_torch(torch.randn(96, 32), ttnn.float32, device=device)
    assert device.ledger.total == 0  # transfers from the host are not counted
    sharded = ttnn.to_memory_config(tensor, ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG)
    assert device.ledger.global_read == device.ledger.total == 96 * 32 * 4
    ttnn.to_memory_config(sharded, ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG)
    assert device.ledger.local == 96 * 32 * 4
    ttnn.to_memory_config(sharded, ttnn.DRAM_MEMORY_CONFIG)
    assert device.ledger.global_written == 96 * 32 * 4
