"""Names of devices: parsing without torch, and opening."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tessera.device.device import ComputeDevice
from tessera.errors import TesseraError

CPU = "cpu"
_ALIASES = {"rocm": "cuda", "hip": "cuda"}  # torch's name of AMD's devices is cuda
_PATTERN = re.compile(r"([a-z][a-z0-9_]*)(?::([0-9]+))?")


def parse_device(text: str) -> str:
    """Return the full name of a device; a name without a number is device 0. Nothing is initialised.

    >>> parse_device("cpu"), parse_device("cuda"), parse_device("xpu:1"), parse_device("rocm:1")
    ('cpu', 'cuda:0', 'xpu:1', 'cuda:1')
    """
    match = _PATTERN.fullmatch(text.strip().lower())
    if match is None or (match[1] == CPU and match[2]):
        raise TesseraError("invalid device name", got=text, allowed="cpu, or a torch device such as cuda:0")
    kind = _ALIASES.get(match[1], match[1])
    return CPU if kind == CPU else f"{kind}:{int(match[2] or 0)}"


def parse_device_choice(text: str) -> str:
    """Return the device of several workers; a name without a number lets every worker pick its own (`pick_device`).

    >>> parse_device_choice("cuda"), parse_device_choice("cuda:1"), parse_device_choice("cpu")
    ('cuda', 'cuda:1', 'cpu')
    """
    name = parse_device(text)
    return name if ":" in text else name.partition(":")[0]


def pick_device(choice: str, worker: int) -> str:
    """Return the device of a worker: a device with a number for all workers, else the devices of a kind in turns.

    See `list_devices`.
    """
    if choice == CPU or ":" in choice:
        return parse_device(choice)
    devices = [name for name in list_devices() if name.startswith(f"{choice}:")]
    return devices[worker % len(devices)] if devices else parse_device(choice)


def list_devices() -> list[str]:
    """Return the names of the devices of this machine.

    Counting may initialise the driver of an accelerator: do not call this function in a process that forks workers.
    """
    import torch

    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None:
        return [CPU]
    return [CPU, *(f"{accelerator.type}:{index}" for index in range(torch.accelerator.device_count()))]


def check_available(names: Iterable[str]) -> None:
    """Raise an error that lists the existing devices if one of `names` does not exist. See `list_devices`."""
    wanted = [name for name in dict.fromkeys(map(parse_device, names)) if name != CPU]
    if not wanted:
        return
    existing = list_devices()
    for name in wanted:
        if name not in existing:
            raise TesseraError("no such device", got=name, allowed=existing, do=_advise(existing))


def check_one_available(name: str) -> None:
    """Raise an error that lists the existing devices if a device does not exist. See `list_devices`."""
    check_available([name])


def _advise(existing: list[str]) -> str:
    import torch

    if len(existing) > 1:
        return ""
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None:
        return f"torch {torch.__version__} is built without an accelerator: install its build for the device"
    return f"torch {torch.__version__} supports {accelerator.type}, but its driver finds no device"


def open_device(name: str) -> ComputeDevice:
    """Return a device by name, and initialise it; raise an error if it does not exist."""
    full = parse_device(name)
    if full == CPU:
        from tessera.device.cpu import CpuDevice

        return CpuDevice()
    import torch

    from tessera.device.accelerator import AcceleratorDevice

    kind = full.partition(":")[0]
    module = getattr(torch, kind, None)
    if getattr(module, "_is_in_bad_fork", bool)():
        raise TesseraError(
            f"{kind} was initialised before this process was forked", do="use the device only in the forked process"
        )
    check_available([full])
    return AcceleratorDevice(torch.device(full))
