"""Simulated device: a grid of cores with local memories, and shared memory banks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tessera.coregrid.config import ComputeConfig
from tessera.coregrid.cores import CoreCoord, CoreRangeSet
from tessera.coregrid.device.arena import ALIGNMENT_BYTES, CoreArena, MemoryBanks
from tessera.coregrid.planning.ledger import Ledger
from tessera.errors import TesseraError
from tessera.geometry import Mesh
from tessera.machine import load_machine
from tessera.machine.catalogue import HOST_MACHINE
from tessera.machine.machine import Machine
from tessera.measure.environment import compute_host_fingerprint, describe_environment

DEFAULT_MACHINE = "wormhole-n150"
BANK_COUNTS = {"wormhole-n150": 12, "grayskull-e150": 8, "blackhole-p150": 8}  # channels of global memory
DEFAULT_BANK_COUNT = 8


class Device:
    """The cores and memories of a machine, simulated in this process.

    `ledger` is the total of the bytes that operations moved on the device, excluding transfers from the host.
    `programs` caches plans that are prepared for execution. `rewrites` counts the tensors whose values were replaced in
    place. `traces` has its value at the end of every trace; None for a trace that has not ended.
    """

    def __init__(self, machine: Machine, *, reserved: int = 0) -> None:
        # buffers are aligned to whole units
        usable = (machine.local_memory - reserved) // ALIGNMENT_BYTES * ALIGNMENT_BYTES
        if reserved < 0 or usable <= 0:
            raise TesseraError(
                "the reserved bytes must be less than a core's memory",
                got=reserved,
                allowed=f"0 to {machine.local_memory}",
            )
        self.machine = replace(machine, local_memory=usable)
        self.grid: Mesh = machine.workers
        self.ledger = Ledger()
        self.programs: dict[Any, Any] = {}
        self.rewrites = 0
        self.traces: list[int | None] = []
        banks = MemoryBanks(BANK_COUNTS.get(machine.name, DEFAULT_BANK_COUNT), machine.global_memory)
        self._memories: tuple[CoreArena, MemoryBanks] | None = CoreArena(self.grid, usable), banks

    @property
    def arena(self) -> CoreArena:
        """The memories of the cores. Raises an error if the device is closed."""
        return self._get_memories()[0]

    @property
    def banks(self) -> MemoryBanks:
        """The shared memory banks. Raises an error if the device is closed."""
        return self._get_memories()[1]

    @property
    def is_open(self) -> bool:
        return self._memories is not None

    def _get_memories(self) -> tuple[CoreArena, MemoryBanks]:
        if self._memories is None:
            name = self.machine.name
            raise TesseraError("the device is closed", got=name, do="open it again and create its tensors again")
        return self._memories

    def add_moved_bytes(self, ledger: Ledger) -> None:
        """Add the bytes that an operation moved to the device's ledger."""
        self.ledger += ledger

    def count_rewrite(self) -> None:
        """Record that a tensor was rewritten in place, so that traces that may read it are outdated."""
        self.rewrites += 1

    def arch(self) -> str:
        """Return the name of the machine."""
        return self.machine.name

    @property
    def core_grid(self) -> CoreRangeSet:
        """All cores of the device. `x` and `y` are the numbers of columns and rows."""
        return CoreRangeSet.of_rectangle(self.grid.rows, self.grid.cols)

    def get_num_devices(self) -> int:
        """Return 1: a machine has one device."""
        return 1

    def get_device_ids(self) -> list[int]:
        """Return [0]: a machine has one device."""
        return [0]

    def dram_grid_size(self) -> CoreCoord:
        """Return the number of memory banks as a row."""
        return CoreCoord(self.banks.count, 1)

    def id(self) -> int:
        return 0

    def enable_program_cache(self) -> None:
        """Do nothing: plans are always cached."""

    def disable_and_clear_program_cache(self) -> None:
        """Delete the cached plans."""
        self.programs.clear()

    def num_program_cache_entries(self) -> int:
        """Return the number of cached plans and programs."""
        return len(self.programs)

    def compute_with_storage_grid_size(self) -> CoreCoord:
        """Return the number of columns (x) and rows (y) of the grid of compute cores."""
        return CoreCoord(self.grid.cols, self.grid.rows)

    def close(self) -> None:
        """Free all memory. Tensors of this device can no longer be used."""
        self._memories = None
        self.programs.clear()

    def __repr__(self) -> str:
        return f"Device({self.machine.name}, {self.grid.rows}x{self.grid.cols}{'' if self.is_open else ', closed'})"


def find_machine(name_or_path: str) -> Machine:
    """Load a machine description by name or from a TOML file. `host` is this computer, if it was calibrated."""
    fingerprint = compute_host_fingerprint(describe_environment()) if name_or_path == HOST_MACHINE else None
    return load_machine(name_or_path, fingerprint)


def open_device(machine: str | Machine = DEFAULT_MACHINE, *, device_id: int = 0, l1_small_size: int = 0) -> Device:
    """Open the device of a machine, given by name (`wormhole_n150`), TOML file or `Machine`.

    `device_id` must be 0, because a machine has one device. `l1_small_size` bytes of every core's memory are reserved.
    """
    if device_id != 0:
        raise TesseraError("unknown device_id", got=device_id, allowed="0")
    if isinstance(machine, str):
        machine = find_machine(machine)
    return Device(machine, reserved=l1_small_size)


def close_device(device: Device) -> None:
    """Close a device and free its memory."""
    device.close()


@contextmanager
def manage_device(
    machine: str | Machine = DEFAULT_MACHINE, *, device_id: int = 0, l1_small_size: int = 0
) -> Iterator[Device]:
    """Open a device for a `with` block, and close the device at the end of the block."""
    device = open_device(machine, device_id=device_id, l1_small_size=l1_small_size)
    try:
        yield device
    finally:
        close_device(device)


def check_compute_config(device: Device | str, compute: ComputeConfig) -> None:
    """Raise an error if a device does not support the settings. Grayskull cannot accumulate in 32 bits or in memory."""
    name = device.machine.name if isinstance(device, Device) else str(device)
    if name.lower().startswith("grayskull") and (compute.fp32_dest_acc_en or compute.packer_l1_acc):
        raise TesseraError(
            "Grayskull supports neither fp32_dest_acc_en nor packer_l1_acc",
            got=f"fp32_dest_acc_en={compute.fp32_dest_acc_en}, packer_l1_acc={compute.packer_l1_acc}",
            do="set both to False",
        )


def init_device_compute_kernel_config(device: Device | str, **settings: Any) -> ComputeConfig:
    """Build a `ComputeConfig` from keyword settings. `throttle_level` has no effect on the model."""
    if isinstance(device, Device):
        _ = device.arena  # raises if the device is closed
    settings.pop("throttle_level", None)
    compute = ComputeConfig(**settings)
    check_compute_config(device, compute)
    return compute
