"""The accelerator of this torch build as a device, through torch's functions for any accelerator."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import torch

from tessera.device.device import DeviceDescription, DeviceMemory
from tessera.device.driver import DeviceDriver, DriverReading

# the largest caches of current accelerators are 256 MiB
DEFAULT_FLUSH_BYTES = 512 << 20
MAX_FLUSH_SHARE = 0.25  # of the free memory


class AcceleratorDevice:
    """One device of `torch.accelerator`. Creating the object makes it the current device of this process."""

    asynchronous = True

    def __init__(self, device: torch.device) -> None:
        self.torch_device, self.name = device, str(device)
        torch.accelerator.set_device_index(device)
        torch.empty(1, device=device)  # initialise the driver now: the first call of a case would take its time

    def describe(self) -> DeviceDescription:
        module = torch.get_device_module(self.torch_device)
        model = _try_call(module, "get_device_name", self.torch_device)
        capability = _try_call(module, "get_device_capability", self.torch_device)
        if isinstance(capability, tuple):
            capability = ".".join(map(str, capability))
        return DeviceDescription(
            name=self.name,
            model=str(model or self.torch_device.type),
            capability=capability if isinstance(capability, str) else "",
            memory_bytes=self._read_memory_info()[1],
        )

    def supports_dtype(self, dtype: torch.dtype) -> bool:
        try:
            if dtype not in torch.accelerator.get_device_capability(self.torch_device)["supported_dtypes"]:
                return False
        except torch.AcceleratorError:  # the device is lost
            raise
        except (RuntimeError, NotImplementedError):
            pass  # the backend does not list its dtypes: try one
        try:
            torch.zeros(1, device=self.torch_device, dtype=dtype)
        except torch.AcceleratorError:
            raise
        except (TypeError, RuntimeError):
            return False
        return True

    def synchronize(self) -> None:
        torch.accelerator.synchronize(self.torch_device)

    def mark_time(self, stream: torch.Stream | None = None) -> torch.Event:
        event = torch.Event(self.torch_device, enable_timing=True)
        event.record(stream or torch.accelerator.current_stream(self.torch_device))
        return event

    def wait_for(self, mark: torch.Event) -> None:
        mark.synchronize()

    def compute_seconds(self, start: torch.Event, end: torch.Event) -> float:
        return float(start.elapsed_time(end)) / 1e3

    def make_stream(self) -> torch.Stream:
        return torch.Stream(self.torch_device)

    def use_stream(self, stream: torch.Stream) -> AbstractContextManager[Any]:
        return stream

    def delay_stream(self, stream: torch.Stream | None, mark: torch.Event) -> None:
        (stream or torch.accelerator.current_stream(self.torch_device)).wait_event(mark)

    def keep_for(self, tensor: torch.Tensor, stream: torch.Stream) -> None:
        tensor.record_stream(stream)

    def allocate_host(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, pin_memory=True)

    def submit_copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        target.copy_(source, non_blocking=True)

    def read_memory(self) -> DeviceMemory | None:
        try:
            stats = torch.accelerator.memory_stats(self.torch_device)
        except torch.AcceleratorError:
            raise
        except RuntimeError:  # the backend has no allocator with statistics
            return None
        if "allocated_bytes.all.current" not in stats:
            return None
        return DeviceMemory(
            current=int(stats["allocated_bytes.all.current"]), peak=int(stats["allocated_bytes.all.peak"])
        )

    def read_free_memory(self) -> int | None:
        return self._read_memory_info()[0]

    def reset_peak_memory(self) -> None:
        torch.accelerator.reset_peak_memory_stats(self.torch_device)

    def read_driver(self) -> DriverReading:
        return self._driver.read()

    @cached_property
    def _driver(self) -> DeviceDriver:
        return DeviceDriver.of(self.torch_device)

    def flush_cache(self) -> None:
        self._flush_buffer.add_(1)

    @cached_property
    def _flush_buffer(self) -> torch.Tensor:
        properties = _try_call(torch.get_device_module(self.torch_device), "get_device_properties", self.torch_device)
        cache = int(getattr(properties, "L2_cache_size", 0) or 0)
        wanted, free = 2 * cache or DEFAULT_FLUSH_BYTES, self.read_free_memory()
        size = wanted if free is None else min(wanted, int(free * MAX_FLUSH_SHARE))
        return torch.zeros(max(1, size // 4), dtype=torch.int32, device=self.torch_device)

    def _read_memory_info(self) -> tuple[int | None, int | None]:
        """Return free and total bytes of the device; None if the backend does not report them."""
        try:
            free, total = torch.accelerator.get_memory_info(self.torch_device)
        except torch.AcceleratorError:
            raise
        except (RuntimeError, NotImplementedError):
            return None, None
        return int(free), int(total)


def _try_call(module: Any, name: str, device: torch.device) -> Any:
    """Call a function that not every kind of accelerator has; None if it is missing or fails."""
    try:
        return getattr(module, name)(device)
    except torch.AcceleratorError:
        raise
    except (AttributeError, RuntimeError, TypeError, AssertionError):
        return None
