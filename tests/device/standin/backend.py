"""Python side of the device for tests: torch imports it as the backend `standin` (entry point `torch.backends`)."""

from __future__ import annotations

import ctypes
import types
from pathlib import Path

import torch

NAME = "standin"
LIBRARY = Path(__file__).with_name("libstandin.so")

_library: ctypes.CDLL | None = None


def load() -> None:
    """Load the library and register the device with torch. The device is initialised at its first use."""
    global _library
    if _library is not None:
        return
    torch.ops.load_library(LIBRARY)
    _library = ctypes.CDLL(str(LIBRARY))
    _library.standin_count_devices.restype = ctypes.c_int64
    _library.standin_count_launches.restype = ctypes.c_int64
    torch.utils.rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, _make_module())
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)


def configure(**values: int) -> None:
    """Set properties of the device, for example `operator_ns=2_000_000`; `standin.cpp` lists them."""
    assert _library is not None
    for name, value in values.items():
        getattr(_library, f"standin_set_{name}")(ctypes.c_int64(value))


def is_initialised() -> bool:
    assert _library is not None
    return bool(_library.standin_is_initialised())


def count_launches() -> int:
    """Return the number of operators and copies that were launched in this process."""
    assert _library is not None
    return int(_library.standin_count_launches())


def _make_module() -> types.ModuleType:
    """Return the functions that torch expects in the module of a device."""
    assert _library is not None
    library = _library
    module = types.ModuleType(f"torch.{NAME}")
    functions = {
        "is_available": lambda: library.standin_count_devices() > 0,
        "device_count": lambda: int(library.standin_count_devices()),
        "is_initialized": is_initialised,
        "_is_in_bad_fork": lambda: bool(library.standin_is_bad_fork()),
        "_lazy_init": lambda: None,
        "current_device": torch.accelerator.current_device_index,
        "set_device": torch.accelerator.set_device_index,
        "synchronize": torch.accelerator.synchronize,
        "current_stream": torch.accelerator.current_stream,
        "clock_rate": lambda device=None: 1000,
        "temperature": lambda device=None: 40,
        "get_device_name": lambda device=None: "Stand-in device for tests",
        "manual_seed_all": _seed_all,
        "manual_seed": _seed_all,
        "get_amp_supported_dtype": lambda: [torch.float16, torch.bfloat16],
    }
    for name, function in functions.items():
        setattr(module, name, function)
    return module


def _seed_all(seed: int) -> None:
    assert _library is not None
    _library.standin_seed(ctypes.c_uint64(seed))
