"""Readings of a device's driver: clock, temperature, reasons of throttling, and energy, each if the driver reports it.

Three sources are asked, none of which is required: torch's functions of the device's kind, NVIDIA's management library
(NVML, which comes with the driver), and the sensors that the kernel offers for a PCI device (hwmon: AMD, Intel).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

NVML_LIBRARY = "libnvidia-ml.so.1"
PCI_FOLDER = Path("/sys/bus/pci/devices")
NVML_CLOCK_SM, NVML_TEMPERATURE_GPU = 1, 0
# bits of nvmlDeviceGetCurrentClocksEventReasons that mean a clock below the requested one
THROTTLE_REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "temperature",
    0x40: "temperature (hardware)",
    0x80: "power brake",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverReading:
    """One reading of the driver; a value is None if no source reports it.

    `throttled` holds the reasons for a reduced clock, `joules` is a counter: only differences of two readings count.
    """

    mhz: float | None = None
    temperature: float | None = None
    throttled: tuple[str, ...] | None = None
    joules: float | None = None

    def to_conditions(self) -> dict[str, Any]:
        """Return the known values, except the energy counter, as conditions of a record."""
        values = {name: value for name, value in asdict(self).items() if value is not None and name != "joules"}
        if self.throttled is not None:
            values["throttled"] = ", ".join(self.throttled)
        return {f"device_{name}": value for name, value in values.items()}


class DriverSource(Protocol):
    """One source of readings."""

    def read(self) -> Mapping[str, Any]:
        """Return the fields of a `DriverReading` that this source reports."""


class DeviceDriver:
    """The driver of one accelerator: every source that exists for it. The first source of a value is used."""

    def __init__(self, sources: tuple[DriverSource, ...]) -> None:
        self._sources = sources

    @classmethod
    def of(cls, device: torch.device) -> DeviceDriver:
        """Return the driver of a device that is initialised."""
        module = torch.get_device_module(device)
        sources: list[DriverSource | None] = []
        properties = _call(lambda: module.get_device_properties(device))
        if device.type == "cuda" and not torch.version.hip and hasattr(properties, "uuid"):
            sources.append(NvmlSource.open(f"GPU-{properties.uuid}"))
        if hasattr(properties, "pci_bus_id"):
            numbers = (getattr(properties, f"pci_{part}_id", 0) for part in ("domain", "bus", "device"))
            sources.append(HwmonSource.open("{:04x}:{:02x}:{:02x}.0".format(*numbers)))
        sources.append(TorchSource(module, device))
        return cls(tuple(source for source in sources if source is not None))

    def read(self) -> DriverReading:
        """Ask all sources."""
        values: dict[str, Any] = {}
        for source in self._sources:
            values = {**source.read(), **values}
        return DriverReading(**values)


class TorchSource:
    """Clock and temperature through torch's functions of a kind of accelerator."""

    def __init__(self, module: Any, device: torch.device) -> None:
        self._module, self._device = module, device

    def read(self) -> Mapping[str, Any]:
        functions = {"mhz": "clock_rate", "temperature": "temperature"}
        seen = {
            field: _call(lambda name=name: float(getattr(self._module, name)(self._device)))  # type: ignore[misc]
            for field, name in functions.items()
        }
        return {field: value for field, value in seen.items() if value is not None}


class NvmlSource:
    """NVIDIA's management library, called directly: it needs no Python package and does not initialise CUDA."""

    def __init__(self, library: ctypes.CDLL, handle: ctypes.c_void_p) -> None:
        self._library, self._handle = library, handle

    @classmethod
    def open(cls, uuid: str) -> NvmlSource | None:
        """Open a device by its UUID; None if there is no library or no such device."""
        try:
            library = ctypes.CDLL(NVML_LIBRARY)
        except OSError:
            return None
        handle = ctypes.c_void_p()
        if library.nvmlInit_v2() or library.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle)):
            return None
        return cls(library, handle)

    def read(self) -> Mapping[str, Any]:
        seen: dict[str, Any] = {
            "mhz": self._ask("nvmlDeviceGetClockInfo", ctypes.c_uint, NVML_CLOCK_SM),
            "temperature": self._ask("nvmlDeviceGetTemperature", ctypes.c_uint, NVML_TEMPERATURE_GPU),
        }
        reasons = self._ask("nvmlDeviceGetCurrentClocksEventReasons", ctypes.c_ulonglong)
        if reasons is None:  # drivers before 535
            reasons = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong)
        if reasons is not None:
            seen["throttled"] = tuple(name for bit, name in THROTTLE_REASONS.items() if reasons & bit)
        millijoules = self._ask("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong)
        if millijoules is not None:
            seen["joules"] = millijoules / 1e3
        return {field: value for field, value in seen.items() if value is not None}

    def _ask(self, name: str, kind: Any, *arguments: int) -> int | None:
        """Call a function whose last argument is a pointer to the result; None if it is missing or fails."""
        function, result = getattr(self._library, name, None), kind()
        if function is None or function(self._handle, *map(ctypes.c_uint, arguments), ctypes.byref(result)):
            return None
        return int(result.value)


class HwmonSource:
    """Sensors of a PCI device in the kernel's hwmon files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def open(cls, address: str, root: Path = PCI_FOLDER) -> HwmonSource | None:
        """Open the sensors of a PCI address such as 0000:03:00.0; None if the kernel has none."""
        folder = next(iter(sorted((root / address / "hwmon").glob("hwmon*"))), None)
        return None if folder is None else cls(folder)

    def read(self) -> Mapping[str, Any]:
        files = {"temperature": ("temp1_input", 1e3), "mhz": ("freq1_input", 1e6), "joules": ("energy1_input", 1e6)}
        seen = {field: self._read_file(name, scale) for field, (name, scale) in files.items()}
        return {field: value for field, value in seen.items() if value is not None}

    def _read_file(self, name: str, scale: float) -> float | None:
        try:
            return int((self._folder / name).read_text()) / scale
        except (OSError, ValueError):
            return None


def _call(function: Callable[[], Any]) -> Any:
    """Call a function of a driver; None if it is missing, its package is not installed, or it fails."""
    try:
        return function()
    except torch.AcceleratorError:
        raise
    except Exception:  # packages of vendors raise their own classes
        return None
