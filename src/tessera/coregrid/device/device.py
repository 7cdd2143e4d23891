"""Simulated device: a grid of cores with local memories, and shared memory banks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tessera.coregrid.config import ComputeConfig
from tessera.coregrid.cores import CoreCoord
from tessera.coregrid.device.arena import ALIGNMENT_BYTES, CoreArena
from tessera.coregrid.device.banks import MemoryBanks
from tessera.coregrid.machines import find_machine
from tessera.coregrid.planning.ledger import Ledger
from tessera.errors import TesseraError
from tessera.geometry import Mesh
from tessera.machine.machine import Machine

DEFAULT_MACHINE = "wormhole-n150"
BANK_COUNTS = {"wormhole-n150": 12, "grayskull-e150": 8, "blackhole-p150": 8}  # channels of global memory
DEFAULT_BANK_COUNT = 8


class Device:
    """The cores and memories of a machine, simulated in this process.

    `ledger` is the total of the bytes that operations moved on the device, excluding transfers from the host.
    `programs` caches plans that are prepared for execution.
    """

    def __init__(self, machine: Machine, *, reserved: int = 0) -> None:
        usable = (
            (machine.local_memory - reserved) // ALIGNMENT_BYTES * ALIGNMENT_BYTES
        )  # buffers are aligned to whole units
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
        self._arena: CoreArena | None = CoreArena(self.grid, self.machine.local_memory)
        self._banks: MemoryBanks | None = MemoryBanks(
            BANK_COUNTS.get(machine.name, DEFAULT_BANK_COUNT), machine.global_memory
        )

    @property
    def arena(self) -> CoreArena:
        """The memories of the cores. Raises an error if the device is closed."""
        if self._arena is None:
            raise _build_closed_error(self)
        return self._arena

    @property
    def banks(self) -> MemoryBanks:
        if self._banks is None:
            raise _build_closed_error(self)
        return self._banks

    @property
    def is_open(self) -> bool:
        return self._arena is not None

    def add_moved_bytes(self, ledger: Ledger) -> None:
        """Add the bytes that an operation moved to the device's ledger."""
        self.ledger += ledger

    def arch(self) -> str:
        """Return the name of the machine."""
        return self.machine.name

    def compute_with_storage_grid_size(self) -> CoreCoord:
        """Return the number of columns (x) and rows (y) of the grid of compute cores."""
        return CoreCoord(self.grid.cols, self.grid.rows)

    def close(self) -> None:
        """Free all memory. Tensors of this device can no longer be used."""
        self._arena = self._banks = None
        self.programs.clear()

    def __repr__(self) -> str:
        return f"Device({self.machine.name}, {self.grid.rows}x{self.grid.cols}{'' if self.is_open else ', closed'})"


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


def _build_closed_error(device: Device) -> TesseraError:
    return TesseraError(
        "the device is closed", got=device.machine.name, do="open it again and create its tensors again"
    )


def init_device_compute_kernel_config(device: Device | str, **settings: Any) -> ComputeConfig:
    """Build a `ComputeConfig` from keyword settings. Every device supports all settings."""
    if isinstance(device, Device):
        _ = device.arena  # raises if the device is closed
    return ComputeConfig(**settings)
