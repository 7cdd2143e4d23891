"""Devices that compute: the CPU, and the accelerator of this torch build, behind one interface.

No other package uses the functions of a single kind of accelerator. A device is initialised when it is opened
(`open_device`), never at import, because measuring processes are forked after the imports.
"""

from tessera.device.device import ComputeDevice, DeviceDescription, DeviceMemory
from tessera.device.names import (
    CPU,
    check_available,
    list_devices,
    open_device,
    parse_device,
    parse_device_choice,
    pick_device,
)

__all__ = [
    "CPU",
    "ComputeDevice",
    "DeviceDescription",
    "DeviceMemory",
    "check_available",
    "list_devices",
    "open_device",
    "parse_device",
    "parse_device_choice",
    "pick_device",
]
