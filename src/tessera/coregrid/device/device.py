"""A device: a grid of cores with their memories, and the banks that they share. It is opened, used and closed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tessera.coregrid.config import ComputeConfig
from tessera.coregrid.device.arena import Arena
from tessera.coregrid.device.banks import Banks
from tessera.coregrid.device.freelist import ALIGNMENT
from tessera.coregrid.device.grids import CoreCoord
from tessera.coregrid.machines import machine_of
from tessera.coregrid.planning.ledger import Ledger
from tessera.errors import TesseraError
from tessera.geometry import Mesh
from tessera.machine.machine import Machine

DEFAULT = "wormhole-n150"
BANKS = {"wormhole-n150": 12, "grayskull-e150": 8, "blackhole-p150": 8}  # channels of the chip's global memory
OTHER_BANKS = 8


class Device:
    """The cores of a machine, as this process plays them.

    `ledger` adds up what all operations moved on the device, not what came from the host; `programs` keeps what an
    operation worked out about a plan, so that it is worked out once.
    """

    def __init__(self, machine: Machine, *, reserved: int = 0) -> None:
        usable = (
            (machine.local_memory - reserved) // ALIGNMENT * ALIGNMENT
        )  # so that every buffer begins at a whole unit
        if reserved < 0 or usable <= 0:
            raise TesseraError(
                "what is reserved of a core's memory leaves some of it", got=reserved, allowed=f"{machine.local_memory}"
            )
        self.machine = replace(machine, local_memory=usable)
        self.grid: Mesh = machine.workers
        self.ledger = Ledger()
        self.programs: dict[Any, Any] = {}
        self._arena: Arena | None = Arena(self.grid, self.machine.local_memory)
        self._banks: Banks | None = Banks(BANKS.get(machine.name, OTHER_BANKS), machine.global_memory)

    @property
    def arena(self) -> Arena:
        """The cores' memories."""
        if self._arena is None:
            raise _closed(self)
        return self._arena

    @property
    def banks(self) -> Banks:
        if self._banks is None:
            raise _closed(self)
        return self._banks

    @property
    def is_open(self) -> bool:
        return self._arena is not None

    def count(self, moved: Ledger) -> None:
        """Add what an operation moved."""
        self.ledger += moved

    def arch(self) -> str:
        """The name of its machine."""
        return self.machine.name

    def compute_with_storage_grid_size(self) -> CoreCoord:
        """The columns (x) and rows (y) of cores that compute."""
        return CoreCoord(self.grid.cols, self.grid.rows)

    def close(self) -> None:
        """Give all memory back; tensors of this device can not be used any more."""
        self._arena = self._banks = None
        self.programs.clear()

    def __repr__(self) -> str:
        return f"Device({self.machine.name}, {self.grid.rows}x{self.grid.cols}{'' if self.is_open else ', closed'})"


def open_device(machine: str | Machine = DEFAULT, *, device_id: int = 0, l1_small_size: int = 0) -> Device:
    """Open a device: a machine by name (`wormhole_n150`), from a TOML file, or one of your own.

    There is one of each, number 0. `l1_small_size` bytes of every core's memory are set aside.
    """
    if device_id != 0:
        raise TesseraError("there is one device of each machine", got=device_id, allowed="device_id=0")
    if isinstance(machine, str):
        machine = machine_of(machine)
    return Device(machine, reserved=l1_small_size)


def close_device(device: Device) -> None:
    """Close a device and give its memory back."""
    device.close()


@contextmanager
def manage_device(machine: str | Machine = DEFAULT, *, device_id: int = 0, l1_small_size: int = 0) -> Iterator[Device]:
    """A device that is open within a `with` block."""
    device = open_device(machine, device_id=device_id, l1_small_size=l1_small_size)
    try:
        yield device
    finally:
        close_device(device)


def _closed(device: Device) -> TesseraError:
    return TesseraError("the device is closed", got=device.machine.name, do="open it again, and make its tensors anew")


def init_device_compute_kernel_config(device: Device | str, **settings: Any) -> ComputeConfig:
    """The settings of a core's arithmetic, by their names; every device here takes all of them."""
    if isinstance(device, Device):
        _ = device.arena  # raises if it is closed
    return ComputeConfig(**settings)
